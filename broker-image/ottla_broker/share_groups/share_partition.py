"""The records of one partition that a share group has in flight: for each its state, its delivery
count and the member that has acquired it (KIP-932). Pure: no I/O, no clock.

    start offset   everything below it is acknowledged or archived (Kafka's SPSO)
    next offset    the first that has not been delivered yet; Kafka's end offset is the one before

Every offset between the two lies in exactly one range. The states and their changes:

    available → acquired                    `acquire`; the delivery count grows
    available → archived                    an offset that holds no record which may be delivered
    acquired  → acknowledged                accepted
    acquired  → archived                    rejected, a gap, or delivered as often as allowed
    acquired  → available                   released, or its lock has expired
    acquired  → archiving → archived        rejected, or delivered as often as allowed, in a group
                                            with a dead-letter topic

A change from `acquired` or `archiving` to another state is a *write*: it takes effect once it is
stored (`commit`), and is undone if it cannot be stored (`abort`). Until then no member can acquire
or acknowledge its records. So a confirmed acknowledgement survives a failure of the leader.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count, groupby, pairwise
from typing import Final, NamedTuple

from ottla_broker.share_groups.dead_letters import DeadLetterReason, DeadLetters
from ottla_broker.share_groups.in_flight_ranges import (
    FINAL_STATES,
    NOT_WRITTEN,
    InFlightRange,
    join_final_ranges,
    overlapping_ranges,
    split_ranges,
    state_after,
)
from ottla_broker.share_groups.share_state import DeliveryState, StateBatch, combine_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError


class AcknowledgeType(IntEnum):
    """The numbers that requests use."""

    gap = 0
    accept = 1
    release = 2
    reject = 3
    renew = 4


STATE_AFTER: Final = {
    AcknowledgeType.gap: DeliveryState.archived,
    AcknowledgeType.accept: DeliveryState.acknowledged,
    AcknowledgeType.release: DeliveryState.available,
    AcknowledgeType.reject: DeliveryState.archived,
}
UNSETTLED_STATES: Final = frozenset({DeliveryState.acquired, DeliveryState.archiving})
KNOWN_TYPES: Final = frozenset(AcknowledgeType)


class Span(NamedTuple):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


class Acknowledgement(NamedTuple):
    """`types`: one AcknowledgeType for all offsets, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


def check_acknowledgement(given: Acknowledgement) -> None:
    """Raises INVALID_REQUEST for one that is wrong in itself, whatever the state of the records."""
    size = given.last - given.first + 1
    if size <= 0 or len(given.types) not in (1, size) or not KNOWN_TYPES.issuperset(given.types):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"offsets {given.first} to {given.last} with {len(given.types)} acknowledge types; "
            "either one type or one for each offset is allowed, each from 0 to 4",
        )


class AcquiredSpan(NamedTuple):
    first: int
    last: int
    delivery_count: int


class StateWrite(NamedTuple):
    """A change to store, and then to commit or abort by its id. `start_offset`: the start offset
    after the commit. `delivery_complete_count`: the number of records at or above it that are then
    acknowledged or archived.
    """

    id: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(eq=False, repr=False)
class SharePartition:
    """`max_deliveries`: number of deliveries after which a record is archived. `max_in_flight`:
    largest distance of the next offset from the start offset. `has_dead_letters`: whether records
    become dead letters before they are archived. These three may change at any time."""

    start_offset: int
    max_deliveries: int
    max_in_flight: int
    next_offset: int = -1
    has_dead_letters: bool = False
    _ranges: list[InFlightRange] = field(default_factory=list)
    _writes: "count[int]" = field(default_factory=lambda: count(NOT_WRITTEN + 1))

    def __post_init__(self) -> None:
        self.next_offset = max(self.next_offset, self.start_offset)

    def restore(self, batches: Iterable[StateBatch]) -> None:
        """Restores the states that the previous leader has stored. Records that it had delivered
        and that were not acknowledged become available.
        """
        for batch in combine_batches((), batches, self.start_offset):
            if batch.first_offset > self.next_offset:
                self._append(self.next_offset, batch.first_offset - 1, DeliveryState.available, 0)
            state = DeliveryState(batch.delivery_state)
            self._append(batch.first_offset, batch.last_offset, state, batch.delivery_count)
        self._advance_start()

    def _append(self, first: int, last: int, state: DeliveryState, delivery_count: int) -> InFlightRange:
        added = InFlightRange(first, last, state, delivery_count)
        self._ranges.append(added)
        self.next_offset = last + 1
        return added

    # -- queries -----------------------------------------------------------------------------------

    @property
    def fetch_offset(self) -> int:
        """The offset from which to read records for the next delivery."""
        return next((one.first for one in self._ranges if one.is_available), self.next_offset)

    @property
    def may_acquire(self) -> bool:
        """False while `max_in_flight` records are in flight and none of them is available."""
        return self.free_locks > 0 or any(one.is_available for one in self._ranges)

    @property
    def free_locks(self) -> int:
        """The number of further records that may be in flight."""
        return self.max_in_flight - (self.next_offset - self.start_offset)

    @property
    def has_available(self) -> bool:
        return any(one.is_available for one in self._ranges)

    @property
    def is_idle(self) -> bool:
        """True if no record is acquired, and none waits for its dead letter. Then no write is in
        flight either."""
        return not any(one.state in UNSETTLED_STATES for one in self._ranges)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lock expires; None if no lock can expire."""
        locked = (one for one in self._ranges if one.state is DeliveryState.acquired and one.write == NOT_WRITTEN)
        return min((one.deadline_ms for one in locked), default=None)

    def ranges(self) -> Sequence[InFlightRange]:
        return tuple(self._ranges)

    # -- acquiring ---------------------------------------------------------------------------------

    def acquire(
        self, member_id: str, readable: Iterable[Span], *, deadline_ms: int, enough: int, at_most: int
    ) -> list[AcquiredSpan]:
        """Acquires available records for a member. `readable`: the spans of records that were read
        from `fetch_offset` on, ascending; offsets before and between them hold no record that may
        be delivered, and are archived. Stops after the span in which the number of acquired records
        reaches `enough`, and always at `at_most` records."""
        acquired: list[AcquiredSpan] = []
        acquired_count, at = 0, self.fetch_offset
        for span in readable:
            if acquired_count >= enough:
                break
            if span.last < at:
                continue
            first = max(span.first, at)
            self._archive_available(at, first - 1)
            added = self._acquire_span(member_id, Span(first, span.last), deadline_ms, at_most - acquired_count)
            acquired_count += sum(one.last - one.first + 1 for one in added)
            acquired += added
            at = span.last + 1
            if acquired_count >= at_most:
                break
        self._advance_start()
        return acquired

    def archive_to(self, offset: int) -> None:
        """Archives the available offsets from `fetch_offset` to below `offset`, which hold no
        record that may be delivered.
        """
        self._archive_available(self.fetch_offset, offset - 1)
        self._advance_start()

    def _acquire_span(self, member_id: str, span: Span, deadline_ms: int, at_most: int) -> list[AcquiredSpan]:
        if span.last >= self.next_offset:
            room = max(self.free_locks, 0)
            last = min(span.last, self.next_offset + room - 1)
            if room and last >= self.next_offset:
                self._append(self.next_offset, last, DeliveryState.available, 0)
        acquired = []
        for one in split_ranges(self._ranges, span.first, span.last):
            if at_most <= 0:
                break
            if not one.is_available:
                continue
            if one.last - one.first + 1 > at_most:
                one = split_ranges(self._ranges, one.first, one.first + at_most - 1)[0]
            one.state = DeliveryState.acquired
            one.delivery_count += 1
            one.member_id, one.deadline_ms = member_id, deadline_ms
            at_most -= one.last - one.first + 1
            acquired.append(AcquiredSpan(one.first, one.last, one.delivery_count))
        return acquired

    def _archive_available(self, first: int, last: int) -> None:
        if last >= self.next_offset >= first:
            self._append(self.next_offset, last, DeliveryState.available, 0)
        for one in split_ranges(self._ranges, first, last):
            if one.is_available:
                one.state = DeliveryState.archived

    # -- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], *, renewed_until_ms: int
    ) -> StateWrite | None:
        """Begins a write for all acknowledgements. Returns None when nothing has to be stored,
        because locks were only renewed or the records are below the start offset. Changes nothing
        on an error: raises INVALID_RECORD_STATE for records that the member does not hold, or
        acknowledges twice; INVALID_REQUEST for unknown types and for offsets that are not
        ascending. For offsets above those in flight it raises INVALID_REQUEST if records below them
        are in flight, and else INVALID_RECORD_STATE."""
        spans = [span for one in acknowledgements for span in self._typed_spans(one)]
        if any(later.first < before.last for (_, before), (_, later) in pairwise(spans)):
            raise KafkaError(ErrorCode.invalid_request, "acknowledged offsets must be ascending")
        if any(later.first == before.last for (_, before), (_, later) in pairwise(spans)):
            raise KafkaError(ErrorCode.invalid_record_state, "an offset is acknowledged twice")
        for _, span in spans:
            self._check_acquired(member_id, span)
        changes: list[tuple[InFlightRange, DeliveryState]] = []
        for kind, span in spans:
            for one in split_ranges(self._ranges, span.first, span.last):
                if kind is AcknowledgeType.renew:
                    one.deadline_ms = renewed_until_ms
                else:
                    is_dead_letter = kind is AcknowledgeType.reject and self.has_dead_letters
                    changes.append((one, DeliveryState.archiving if is_dead_letter else STATE_AFTER[kind]))
        return self._begin_write(changes)

    def _typed_spans(self, given: Acknowledgement) -> list[tuple[AcknowledgeType, Span]]:
        check_acknowledgement(given)
        if given.last < self.start_offset:
            return []
        if len(given.types) == 1:
            found = [(AcknowledgeType(given.types[0]), Span(given.first, given.last))]
        else:
            found, at = [], given.first
            for kind, run in groupby(given.types):
                length = len(list(run))
                found.append((AcknowledgeType(kind), Span(at, at + length - 1)))
                at += length
        start = self.start_offset
        return [(kind, Span(max(span.first, start), span.last)) for kind, span in found if span.last >= start]

    def _check_acquired(self, member_id: str, span: Span) -> None:
        if span.last >= self.next_offset:
            # As in Kafka, the request is invalid only if records below are in flight. If none are,
            # the member may have got the record before this leader lost and regained the partition.
            is_wrong = bool(self._ranges) and self._ranges[0].first <= span.first
            code = ErrorCode.invalid_request if is_wrong else ErrorCode.invalid_record_state
            raise KafkaError(code, f"offset {span.last} has not been delivered")
        if not all(one.is_acquired_by(member_id) for one in overlapping_ranges(self._ranges, span.first, span.last)):
            raise KafkaError(
                ErrorCode.invalid_record_state,
                f"offsets {span.first} to {span.last} are not all acquired by member {member_id}",
            )

    def release(self, member_id: str) -> StateWrite | None:
        """Begins a write that makes the member's records available again, or archives those that
        were delivered `max_deliveries` times."""
        mine = [one for one in self._ranges if one.is_acquired_by(member_id)]
        return self._begin_write([(one, DeliveryState.available) for one in mine])

    def expire_locks(self, now_ms: int) -> StateWrite | None:
        """Begins a write that makes records available whose locks have expired, or archives those
        that were delivered `max_deliveries` times."""
        expired = [
            one
            for one in self._ranges
            if one.state is DeliveryState.acquired and one.write == NOT_WRITTEN and one.deadline_ms <= now_ms
        ]
        return self._begin_write([(one, DeliveryState.available) for one in expired])

    # -- dead letters ------------------------------------------------------------------------------

    def take_dead_letters(self) -> list[DeadLetters]:
        """The records in the state archiving that were not taken before."""
        taken = []
        for one in self._ranges:
            if one.state is DeliveryState.archiving and not one.is_dead_letter_taken:
                one.is_dead_letter_taken = True
                taken.append(DeadLetters(one.first, one.last, one.delivery_count, one.reason))
        return taken

    def archive_dead_letters(self, letters: DeadLetters) -> StateWrite | None:
        """Begins a write that archives records whose dead letters are written or given up. Returns
        None if no record of them is in the state archiving."""
        found = [
            one
            for one in split_ranges(self._ranges, letters.first, letters.last)
            if one.state is DeliveryState.archiving and one.write == NOT_WRITTEN
        ]
        return self._begin_write([(one, DeliveryState.archived) for one in found])

    # -- writes ------------------------------------------------------------------------------------

    def _begin_write(self, changes: Sequence[tuple[InFlightRange, DeliveryState]]) -> StateWrite | None:
        if not changes:
            return None
        write = next(self._writes)
        for one, state in changes:
            is_at_limit = state is DeliveryState.available and one.delivery_count >= self.max_deliveries
            one.write, one.next_state = write, state
            if is_at_limit:
                one.next_state = DeliveryState.archiving if self.has_dead_letters else DeliveryState.archived
            if one.next_state is DeliveryState.archiving:
                one.reason = DeadLetterReason.delivery_limit if is_at_limit else DeadLetterReason.rejected
        batches = tuple(StateBatch(one.first, one.last, one.next_state, one.delivery_count) for one, _ in changes)
        final_sizes = [one.last - one.first + 1 for one in self._ranges if state_after(one, write) in FINAL_STATES]
        start_offset = self._start_after(write)
        complete_count = sum(final_sizes) - (start_offset - self.start_offset)
        return StateWrite(write, start_offset, complete_count, combine_batches((), batches, start_offset))

    def _start_after(self, write: int) -> int:
        """The start offset if this write is the next to be committed."""
        for one in self._ranges:
            if state_after(one, write) not in FINAL_STATES:
                return one.first
        return self.next_offset

    def commit(self, write: int) -> None:
        """Called when the write is stored: applies its states."""
        for one in self._ranges:
            if one.write == write:
                one.state, one.write, one.member_id = one.next_state, NOT_WRITTEN, ""
        self._advance_start()

    def abort(self, write: int, retry_ms: int) -> None:
        """Called when the write could not be stored. Its records keep their state; locks expire at
        `retry_ms` (loop time) at the earliest."""
        for one in self._ranges:
            if one.write == write:
                one.write, one.deadline_ms = NOT_WRITTEN, max(one.deadline_ms, retry_ms)

    # -- the ends ----------------------------------------------------------------------------------

    def truncate_to(self, log_start: int) -> None:
        """Removes offsets below the log start offset, whose records were deleted."""
        if log_start <= self.start_offset:
            return
        split_ranges(self._ranges, self.start_offset, log_start - 1)
        self._ranges = [one for one in self._ranges if one.first >= log_start]
        self.start_offset = log_start
        self.next_offset = max(self.next_offset, log_start)
        self._advance_start()

    def _advance_start(self) -> None:
        final_count = 0
        while final_count < len(self._ranges) and self._ranges[final_count].state in FINAL_STATES:
            final_count += 1
        del self._ranges[:final_count]
        self.start_offset = self._ranges[0].first if self._ranges else self.next_offset
        self._ranges = join_final_ranges(self._ranges)
