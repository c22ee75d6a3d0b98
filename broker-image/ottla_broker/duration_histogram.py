"""A histogram of durations whose buckets double, and quantiles of its recent past."""

from collections import deque
from collections.abc import Sequence
from typing import Final

UNITS_PER_SECOND: Final = 1 << 15
"""The first bucket ends at one unit, 31 µs; each further bucket ends at twice the time."""
BUCKETS: Final = 64
SHOWN_BUCKETS: Final = 22
"""The last bucket that metrics show ends at 64 s."""
WINDOW_S: Final = 300.0
SNAPSHOT_INTERVAL_S: Final = 60.0


class DurationHistogram:
    """`counts[n]`: durations below 2**n units that are in no earlier bucket."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_s = 0.0

    def observe(self, duration_s: float, times: int = 1) -> int:
        """Counts the duration and returns its bucket."""
        bucket = int(duration_s * UNITS_PER_SECOND).bit_length()
        self.counts[bucket] += times
        self.sum_s += duration_s * times
        return bucket

    @classmethod
    def merge(cls, histograms: "Sequence[DurationHistogram]") -> "DurationHistogram":
        merged = cls()
        for one in histograms:
            merged.counts = [a + b for a, b in zip(merged.counts, one.counts, strict=True)]
            merged.sum_s += one.sum_s
        return merged

    @property
    def count(self) -> int:
        return sum(self.counts)


def bucket_of(duration_s: float) -> int:
    return int(duration_s * UNITS_PER_SECOND).bit_length()


def bucket_end_s(bucket: int) -> float:
    """Durations of a bucket are shorter than this."""
    return float(1 << bucket) / UNITS_PER_SECOND


def estimate_quantile(counts: Sequence[int], quantile: float) -> float:
    """The duration in seconds below which this share of the durations is, interpolated in its
    bucket as Prometheus does. NaN without durations.
    """
    rank = quantile * sum(counts)
    passed = 0
    for bucket, count in enumerate(counts):
        if count and passed + count >= rank:
            start_s = bucket_end_s(bucket - 1) if bucket else 0.0
            return start_s + (bucket_end_s(bucket) - start_s) * (rank - passed) / count
        passed += count
    return float("nan")


class RecentCounts:
    """The counts of a histogram over the last WINDOW_S, from snapshots that its readers cause."""

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, list[int]]] = deque()

    def update(self, now_s: float, counts: Sequence[int]) -> list[int]:
        """The counts since the newest snapshot that is at least WINDOW_S old; without one, all
        counts. If readers are rare, these counts may span much more than WINDOW_S.
        """
        snapshots = self._snapshots
        while len(snapshots) > 1 and snapshots[1][0] <= now_s - WINDOW_S:
            snapshots.popleft()
        if not snapshots:
            snapshots.append((now_s, [0] * len(counts)))
        oldest = snapshots[0][1]
        recent = [now - before for now, before in zip(counts, oldest, strict=True)]
        if now_s - snapshots[-1][0] >= SNAPSHOT_INTERVAL_S:
            snapshots.append((now_s, list(counts)))
        return recent
