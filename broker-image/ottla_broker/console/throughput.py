"""Throughput of this broker in the last hour, kept in memory."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla_broker.metrics import PartitionTraffic

FIRST_INTERVAL_S: Final = 1.0
SAMPLE_INTERVAL_S: Final = 10.0
MAX_SAMPLES: Final = 360
"""An hour."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counted since the broker started."""

    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, of the interval that ends at `at_s`, in seconds since 1970."""

    at_s: float
    records_in: float
    bytes_in: float
    bytes_out: float
    requests: float


def add_up(traffic: Iterable[PartitionTraffic], requests: Iterable[int]) -> Totals:
    records = written = read = 0
    for one in traffic:
        records += one.messages_in
        written += one.bytes_in
        read += one.bytes_out
    return Totals(records, written, read, sum(requests))


class ThroughputHistory:
    """The rates of the last hour. Counts of a partition vanish with it: a rate is never below 0."""

    def __init__(self) -> None:
        self.rates: deque[Rates] = deque(maxlen=MAX_SAMPLES)
        self._last: tuple[float, Totals] | None = None

    def add(self, at_s: float, totals: Totals) -> None:
        if self._last is not None and at_s > self._last[0]:
            self.rates.append(rates_between(*self._last, at_s, totals))
        self._last = (at_s, totals)

    def columns(self) -> dict[str, list[float]]:
        """The rates by name, each a list in the order of time: the form that uPlot draws."""
        names = ("at_s", "records_in", "bytes_in", "bytes_out", "requests")
        return {name: [round(getattr(one, name), 1) for one in self.rates] for name in names}


def rates_between(before_s: float, before: Totals, at_s: float, now: Totals) -> Rates:
    took_s = at_s - before_s
    return Rates(
        at_s,
        max(0, now.records_in - before.records_in) / took_s,
        max(0, now.bytes_in - before.bytes_in) / took_s,
        max(0, now.bytes_out - before.bytes_out) / took_s,
        max(0, now.requests - before.requests) / took_s,
    )
