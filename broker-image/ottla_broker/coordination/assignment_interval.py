"""When the next target assignment of a group may be computed (KIP-1263). Pure.

Within the assignment interval after an assignment, changes begin group epochs without a new target
assignment. The first heartbeat after the interval computes one for all of them. A member that joins
meanwhile is in the epoch of the last assignment, with no partitions. The first assignment of a
group waits for nothing: of a new group, of one whose members had all left, and after a change of
coordinator.
"""


def may_assign(assigned_ms: int | None, interval_ms: int, now_ms: int) -> bool:
    """`assigned_ms`: when the last assignment was computed, None for the first one."""
    return assigned_ms is None or now_ms >= assigned_ms + interval_ms
