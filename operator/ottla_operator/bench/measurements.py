"""What `ottla bench` has measured, and its summary. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PHASES: Final = ("produce", "latency", "consume")
INTERVAL_S: Final = 0.25
"""Time that one bar of a plot stands for, before bars are averaged."""
BUSY_CLIENT: Final = 0.9
"""Share of a core above which the command itself is what limits a rate."""
SUMMARY_QUANTILES: Final = (("p50Ms", 0.5), ("p95Ms", 0.95), ("p99Ms", 0.99), ("maxMs", 1.0))


@dataclass(slots=True)
class Throughput:
    """Records and bytes of one phase: bytes of values that were produced, or of batches that were
    consumed. `by_interval`: bytes in each interval. `cpu_s`: CPU time of this command.
    """

    seconds: float = 0.0
    records: int = 0
    bytes: int = 0
    cpu_s: float = 0.0
    by_interval: list[int] = field(default_factory=list)

    def add(self, at_s: float, records: int, size: int) -> None:
        """`at_s`: since the phase began."""
        self.records += records
        self.bytes += size
        interval = int(at_s / INTERVAL_S)
        self.by_interval += [0] * (interval + 1 - len(self.by_interval))
        self.by_interval[interval] += size

    @property
    def bytes_per_second(self) -> list[float]:
        """By interval. The last one may be short and is left out, unless it is the only one."""
        return [size / INTERVAL_S for size in self.by_interval[:-1] or self.by_interval]

    @property
    def is_limited_by_client(self) -> bool:
        return self.seconds > 0 and self.cpu_s / self.seconds > BUSY_CLIENT

    def summary(self) -> dict[str, Any]:
        per_second = 1 / self.seconds if self.seconds > 0 else 0.0
        return {
            "seconds": round(self.seconds, 3),
            "records": self.records,
            "recordsPerSecond": round(self.records * per_second, 1),
            "bytesPerSecond": round(self.bytes * per_second, 1),
            "clientCpu": round(self.cpu_s * per_second, 3),
        }


@dataclass(slots=True)
class Latency:
    """Milliseconds of each record: until it was acknowledged, and until a consumer had it."""

    acknowledged_ms: list[float] = field(default_factory=list)
    received_ms: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "records": len(self.acknowledged_ms),
            "acknowledged": describe_quantiles(self.acknowledged_ms),
            "received": describe_quantiles(self.received_ms),
        }


def describe_quantiles(values: Sequence[float]) -> Mapping[str, float | None]:
    ordered = sorted(values)
    return {name: quantile(ordered, share) for name, share in SUMMARY_QUANTILES}


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed; None without
    values.
    """
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
