"""Throughput and latency of this broker in the last hour, kept in memory."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import isnan
from typing import Final

from ottla_broker.duration_histogram import BUCKETS, estimate_quantile
from ottla_broker.metrics import PartitionTraffic
from ottla_broker.request_times import ApiTimes
from ottla_broker.wire.api_keys import ApiKey

FIRST_INTERVAL_S: Final = 1.0
SAMPLE_INTERVAL_S: Final = 10.0
MAX_SAMPLES: Final = 360
"""An hour."""
NO_DURATIONS: Final = (0,) * BUCKETS


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the broker started. `produce`, `fetch`: numbers of requests in each bucket of
    the histogram of their durations. The duration of Produce is the whole (`total`), that of
    consumers' Fetch the broker's own work (`local`), because a fetch also waits for records.
    """

    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    produce: Sequence[int] = NO_DURATIONS
    fetch: Sequence[int] = NO_DURATIONS


@dataclass(frozen=True, slots=True)
class Rates:
    """Counts per second, and quantiles of durations, of the interval that ends at `at_s`, in
    seconds since 1970. None: there was no such request.
    """

    at_s: float
    records_in: float
    bytes_in: float
    bytes_out: float
    requests: float
    produce_p50_ms: float | None
    produce_p99_ms: float | None
    fetch_p50_ms: float | None
    fetch_p99_ms: float | None


def sum_totals(
    traffic: Iterable[PartitionTraffic], request_counts: Iterable[int], times_by_api: Mapping[int, ApiTimes]
) -> Totals:
    records = written = read = 0
    for one in traffic:
        records += one.messages_in
        written += one.bytes_in
        read += one.bytes_out
    produce, fetch = times_by_api.get(ApiKey.PRODUCE), times_by_api.get(ApiKey.FETCH)
    return Totals(
        records,
        written,
        read,
        sum(request_counts),
        NO_DURATIONS if produce is None else tuple(produce.total.counts),
        NO_DURATIONS if fetch is None else tuple(fetch.local.counts),
    )


class ThroughputHistory:
    """The rates of the last hour. Totals fall when a partition leaves the broker, because its
    counts go with it; rates are then 0.
    """

    def __init__(self) -> None:
        self.rates: deque[Rates] = deque(maxlen=MAX_SAMPLES)
        self._last: tuple[float, Totals] | None = None

    def add(self, at_s: float, totals: Totals) -> None:
        if self._last is not None and at_s > self._last[0]:
            self.rates.append(rates_between(*self._last, at_s, totals))
        self._last = (at_s, totals)

    def columns(self) -> dict[str, list[float | None]]:
        """The rates by name, each a list in the order of time: the form that uPlot draws."""
        return {one.name: [getattr(rates, one.name) for rates in self.rates] for one in fields(Rates)}


def rates_between(before_s: float, before: Totals, at_s: float, now: Totals) -> Rates:
    def rate(earlier: int, later: int) -> float:
        return round(max(0, later - earlier) / (at_s - before_s), 1)

    return Rates(
        round(at_s, 1),
        rate(before.records_in, now.records_in),
        rate(before.bytes_in, now.bytes_in),
        rate(before.bytes_out, now.bytes_out),
        rate(before.requests, now.requests),
        quantile_ms(before.produce, now.produce, 0.5),
        quantile_ms(before.produce, now.produce, 0.99),
        quantile_ms(before.fetch, now.fetch, 0.5),
        quantile_ms(before.fetch, now.fetch, 0.99),
    )


def quantile_ms(before: Sequence[int], now: Sequence[int], quantile: float) -> float | None:
    """A quantile of the durations that were counted in between; None if there were none."""
    found_s = estimate_quantile([b - a for a, b in zip(before, now, strict=True)], quantile)
    return None if isnan(found_s) else round(found_s * 1000, 3)
