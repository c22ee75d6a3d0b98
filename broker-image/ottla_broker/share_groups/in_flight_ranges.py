"""The ranges of offsets that a share group has in flight: sorted, disjoint, and each in one state.
Pure.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla_broker.share_groups.dead_letters import DeadLetterReason
from ottla_broker.share_groups.share_state import DeliveryState

FINAL_STATES: Final = frozenset({DeliveryState.acknowledged, DeliveryState.archived})
NOT_WRITTEN: Final = 0


@dataclass(slots=True)
class InFlightRange:
    """A range of offsets in one state. `member_id`, `deadline_ms`: of acquired offsets, the member
    that has the lock, and the loop's time at which the lock ends. `write`: the id of the write in
    flight that changes the range, or NOT_WRITTEN. `next_state`: the state after that write.
    `reason`, `is_dead_letter_taken`: of offsets in the state archiving."""

    first: int
    last: int
    state: DeliveryState
    delivery_count: int
    member_id: str = ""
    deadline_ms: int = 0
    write: int = NOT_WRITTEN
    next_state: DeliveryState = DeliveryState.available
    reason: DeadLetterReason = DeadLetterReason.unknown
    is_dead_letter_taken: bool = False

    @property
    def is_available(self) -> bool:
        return self.state is DeliveryState.available

    def is_acquired_by(self, member_id: str) -> bool:
        return self.state is DeliveryState.acquired and self.member_id == member_id and self.write == NOT_WRITTEN


def state_after(one: InFlightRange, write: int) -> DeliveryState:
    """The state of the range once this write is committed."""
    return one.next_state if one.write == write else one.state


def overlapping_ranges(ranges: Sequence[InFlightRange], first: int, last: int) -> list[InFlightRange]:
    at = max(bisect_right(ranges, first, key=lambda one: one.first) - 1, 0)
    found = []
    while at < len(ranges) and ranges[at].first <= last:
        if ranges[at].last >= first:
            found.append(ranges[at])
        at += 1
    return found


def split_ranges(ranges: list[InFlightRange], first: int, last: int) -> list[InFlightRange]:
    """Splits ranges so that none crosses `first` or `last`. Returns those between."""
    _split_at(ranges, first)
    _split_at(ranges, last + 1)
    return overlapping_ranges(ranges, first, last) if first <= last else []


def _split_at(ranges: list[InFlightRange], offset: int) -> None:
    """Splits the range that holds `offset`, so that the second part begins there."""
    at = bisect_right(ranges, offset, key=lambda one: one.first) - 1
    if at < 0:
        return
    one = ranges[at]
    if one.first < offset <= one.last:
        ranges.insert(at + 1, replace(one, first=offset))
        one.last = offset - 1


def join_final_ranges(ranges: Sequence[InFlightRange]) -> list[InFlightRange]:
    """Merges adjacent ranges of the same final state and delivery count, so that few are left."""
    joined: list[InFlightRange] = []
    for one in ranges:
        last = joined[-1] if joined else None
        if (
            last is not None
            and one.state in FINAL_STATES
            and last.state is one.state
            and last.delivery_count == one.delivery_count
        ):
            last.last = one.last
        else:
            joined.append(one)
    return joined
