"""Rates at which records are written, from offsets by time.

Leaders find offsets by the timestamps of records (ListOffsets). So a rate is known without a
history of samples, and of all brokers.
"""

from typing import Final

from ottla_broker.console.cluster_requests import UNKNOWN

RATE_WINDOW_S: Final = 600
"""As in the recording rule `ottla_consumergroup_lag_seconds`."""


def count_written(offset_at: int | None, end: int) -> int:
    """Offsets since the time at which the partition had `offset_at` (−1: nothing was written since,
    None: unknown). −1: unknown.
    """
    if offset_at is None or end < 0:
        return UNKNOWN
    return 0 if offset_at < 0 else max(0, end - offset_at)


def estimate_lag_s(lag: int, written: int) -> float:
    """How long producers needed for `lag` records, at the rate of the RATE_WINDOW_S in which they
    wrote `written`, which is taken as at least one. −1: unknown.
    """
    if min(lag, written) < 0:
        return UNKNOWN
    return lag * RATE_WINDOW_S / max(1, written)
