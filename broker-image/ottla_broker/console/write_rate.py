"""Rates at which records are written, from offsets by time.

Leaders find offsets by the timestamps of records (ListOffsets). So a rate is known without a
history of samples, and for the partitions of all brokers.
"""

from typing import Final

from ottla_broker.console.cluster_requests import UNKNOWN

RATE_WINDOW_S: Final = 600
"""The window of the recording rule `ottla_consumergroup_lag_seconds`, too."""


def count_written(offset_at: int | None, end: int) -> int:
    """The number of offsets that were written since a time; −1: unknown. `offset_at`: the first
    offset since that time; −1: nothing was written since; None: unknown. `end`: the end now.
    """
    if offset_at is None or end < 0:
        return UNKNOWN
    return 0 if offset_at < 0 else max(0, end - offset_at)


def estimate_lag_s(lag: int, written: int) -> float:
    """How long producers took for `lag` records, at their rate in the last RATE_WINDOW_S; −1:
    unknown. `written`: records that they wrote in it, which count as at least one.
    """
    if min(lag, written) < 0:
        return UNKNOWN
    return lag * RATE_WINDOW_S / max(1, written)
