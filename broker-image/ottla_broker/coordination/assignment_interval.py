"""When the next target assignment of a group may be computed (KIP-1263). Pure.

Within the assignment interval after an assignment, changes begin group epochs without a new target
assignment. The first heartbeat after the interval computes one for all of them. A member that joins
meanwhile is in the epoch of the last assignment, with no partitions. The interval does not delay
the first assignment of a new group, of a group whose members had all left, or of a group that this
coordinator has just loaded.
"""


def may_assign(assigned_ms: int | None, interval_ms: int, now_ms: int) -> bool:
    """`assigned_ms`: when the last assignment was computed, None before the first one. Both times
    are of the event loop."""
    return assigned_ms is None or now_ms >= assigned_ms + interval_ms
