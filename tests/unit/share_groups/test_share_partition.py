"""The records that a share group has in flight: by example, and against a model of each offset."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.share_groups.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredSpan,
    SharePartition,
    Span,
    StateWrite,
)
from ottla_broker.share_groups.share_state import DeliveryState, StateBatch, combine_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError

ACCEPT, RELEASE, REJECT, GAP, RENEW = (
    AcknowledgeType.accept,
    AcknowledgeType.release,
    AcknowledgeType.reject,
    AcknowledgeType.gap,
    AcknowledgeType.renew,
)
MANY = 1 << 30


def new_partition(start: int = 0, max_deliveries: int = 3, max_in_flight: int = 100) -> SharePartition:
    return SharePartition(start, max_deliveries, max_in_flight)


def acquire(
    records: SharePartition, first: int, last: int, member: str = "m", *, deadline_ms: int = 30, at_most: int = MANY
) -> list[AcquiredSpan]:
    spans = [Span(first, last)]
    return records.acquire(member, spans, deadline_ms=deadline_ms, enough=MANY, at_most=at_most)


def acknowledge(records: SharePartition, first: int, last: int, *types: int) -> StateWrite:
    write = records.acknowledge("m", [Acknowledgement(first, last, types)], renewed_until_ms=0)
    assert write is not None
    return write


def acknowledgement_error(records: SharePartition, *acknowledgements: Acknowledgement, member: str = "m") -> ErrorCode:
    """The error of a refused acknowledgement, which must change no record."""
    before = [str(one) for one in records.ranges()]
    with pytest.raises(KafkaError) as raised:
        records.acknowledge(member, acknowledgements, renewed_until_ms=0)
    assert [str(one) for one in records.ranges()] == before
    return raised.value.code


def test_accepted_records_are_finished_once_their_state_is_stored() -> None:
    records = new_partition()
    assert acquire(records, 0, 9) == [AcquiredSpan(0, 9, 1)]
    write = acknowledge(records, 0, 4, ACCEPT)
    assert (write.start_offset, write.batches, records.start_offset) == (5, (), 0)
    records.commit(write.id)
    assert (records.start_offset, records.fetch_offset) == (5, 10)


def test_a_record_in_the_middle_does_not_move_the_start_offset() -> None:
    records = new_partition()
    acquire(records, 0, 9)
    write = acknowledge(records, 4, 5, ACCEPT)
    assert write.batches == (StateBatch(4, 5, DeliveryState.acknowledged, 1),)
    assert (write.start_offset, write.delivery_complete_count) == (0, 2)
    records.commit(write.id)
    assert records.start_offset == 0


def test_released_records_are_delivered_again_with_a_higher_count() -> None:
    records = new_partition()
    acquire(records, 0, 9)
    records.commit(acknowledge(records, 3, 4, RELEASE).id)
    assert records.fetch_offset == 3
    assert acquire(records, 0, 12, "other") == [AcquiredSpan(3, 4, 2), AcquiredSpan(10, 12, 1)]


def test_a_record_is_archived_after_its_last_delivery() -> None:
    records = new_partition(max_deliveries=2)
    for count in (1, 2):
        assert acquire(records, 0, 0) == [AcquiredSpan(0, 0, count)]
        records.commit(acknowledge(records, 0, 0, RELEASE).id)
    assert (records.start_offset, records.next_offset) == (1, 1)


def test_one_request_acknowledges_each_record_in_its_own_way() -> None:
    records = new_partition()
    acquire(records, 0, 4)
    write = acknowledge(records, 0, 4, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)
    records.commit(write.id)
    assert [(one.first, one.last, one.state) for one in records.ranges()] == [
        (1, 1, DeliveryState.available),
        (2, 3, DeliveryState.archived),
        (4, 4, DeliveryState.acknowledged),
    ]


def test_only_the_member_that_holds_the_lock_acknowledges() -> None:
    records = new_partition()
    acquire(records, 0, 4)
    given = Acknowledgement(0, 4, (ACCEPT,))
    assert acknowledgement_error(records, given, member="other") is ErrorCode.invalid_record_state
    write = acknowledge(records, 0, 2, ACCEPT)
    assert acknowledgement_error(records, given) is ErrorCode.invalid_record_state  # a part of it is being stored
    records.commit(write.id)
    acknowledge(records, 0, 4, ACCEPT)  # below the start offset nothing is left to acknowledge


@pytest.mark.parametrize(
    "given",
    [
        Acknowledgement(3, 2, (ACCEPT,)),
        Acknowledgement(0, 2, (ACCEPT, ACCEPT)),
        Acknowledgement(0, 2, (9,)),
        Acknowledgement(0, 2, ()),
        Acknowledgement(0, 50, (ACCEPT,)),
    ],
)
def test_impossible_acknowledgements_are_refused(given: Acknowledgement) -> None:
    records = new_partition()
    acquire(records, 0, 4)
    assert acknowledgement_error(records, given) is ErrorCode.invalid_request


def test_acknowledgement_of_offsets_that_a_former_leader_may_have_delivered_gets_invalid_record_state() -> None:
    records = new_partition()
    given = Acknowledgement(0, 4, (ACCEPT,))
    assert acknowledgement_error(records, given) is ErrorCode.invalid_record_state
    acquire(records, 0, 4)
    records.commit(acknowledge(records, 0, 4, ACCEPT).id)
    assert acknowledgement_error(records, Acknowledgement(5, 5, (ACCEPT,))) is ErrorCode.invalid_record_state


def test_offsets_in_one_request_must_be_ascending() -> None:
    records = new_partition()
    acquire(records, 0, 4)
    given = (Acknowledgement(2, 4, (ACCEPT,)), Acknowledgement(0, 2, (ACCEPT,)))
    assert acknowledgement_error(records, *given) is ErrorCode.invalid_request


def test_records_whose_state_cannot_be_stored_stay_acquired() -> None:
    records = new_partition()
    acquire(records, 0, 4)
    records.abort(acknowledge(records, 0, 4, ACCEPT).id, 50)
    assert records.next_deadline_ms == 50
    records.commit(acknowledge(records, 0, 4, ACCEPT).id)
    assert records.start_offset == 5


def test_an_expired_lock_releases_its_records() -> None:
    records = new_partition()
    acquire(records, 0, 4, deadline_ms=30)
    assert records.expire_locks(29) is None
    write = records.expire_locks(30)
    assert write is not None and write.batches == (StateBatch(0, 4, DeliveryState.available, 1),)
    assert records.fetch_offset == 5  # until that is stored
    records.commit(write.id)
    assert acquire(records, 0, 4, "other") == [AcquiredSpan(0, 4, 2)]


def test_a_renewed_lock_lasts_longer() -> None:
    records = new_partition()
    acquire(records, 0, 4, deadline_ms=30)
    assert records.acknowledge("m", [Acknowledgement(0, 4, (RENEW,))], renewed_until_ms=60) is None
    assert (records.expire_locks(30), records.next_deadline_ms) == (None, 60)


def test_records_of_a_member_that_leaves_are_available_and_count_as_delivered() -> None:
    records = new_partition()
    acquire(records, 0, 4)
    acquire(records, 5, 6, "other")
    write = records.release("m")
    assert write is not None
    records.commit(write.id)
    assert acquire(records, 0, 6, "third") == [AcquiredSpan(0, 4, 2)]


def test_no_more_records_than_allowed_are_in_flight() -> None:
    records = new_partition(max_in_flight=10)
    assert acquire(records, 0, 20) == [AcquiredSpan(0, 9, 1)]
    assert not records.may_acquire
    records.commit(acknowledge(records, 0, 3, ACCEPT).id)
    assert acquire(records, 0, 20) == [AcquiredSpan(10, 13, 1)]


def test_a_member_gets_no_more_than_it_asks_for() -> None:
    records = new_partition()
    assert acquire(records, 0, 9, at_most=4) == [AcquiredSpan(0, 3, 1)]
    assert acquire(records, 0, 9, "other") == [AcquiredSpan(4, 9, 1)]


def test_offsets_without_records_are_skipped() -> None:
    records = new_partition()
    spans = [Span(2, 3), Span(6, 7)]
    acquired = records.acquire("m", spans, deadline_ms=30, enough=MANY, at_most=MANY)
    assert acquired == [AcquiredSpan(2, 3, 1), AcquiredSpan(6, 7, 1)]
    assert records.start_offset == 2
    records.commit(acknowledge(records, 2, 3, ACCEPT).id)
    assert records.start_offset == 6
    records.archive_to(12)
    assert records.next_offset == 12


def test_records_below_the_log_start_are_forgotten() -> None:
    records = new_partition()
    acquire(records, 0, 9)
    records.truncate_to(4)
    assert (records.start_offset, records.ranges()[0].first) == (4, 4)
    records.commit(acknowledge(records, 4, 9, ACCEPT).id)
    records.truncate_to(30)
    assert (records.start_offset, records.next_offset) == (30, 30)


def test_a_new_leader_continues_from_what_is_stored() -> None:
    records = new_partition(start=5)
    records.restore([StateBatch(7, 8, DeliveryState.acknowledged, 1), StateBatch(9, 9, DeliveryState.available, 2)])
    assert (records.start_offset, records.fetch_offset, records.next_offset) == (5, 5, 10)
    assert acquire(records, 5, 11) == [
        AcquiredSpan(5, 6, 1),
        AcquiredSpan(9, 9, 3),
        AcquiredSpan(10, 11, 1),
    ]


# -- against a model of each offset ----------------------------------------------------------------

END = 24
LIMIT = 3
MEMBERS = ("a", "b")


@dataclass
class Model:
    """Runs operations on a share-partition, as its leader does, and keeps for each offset who holds
    it, its deliveries and whether it is done. `stored`: state at the share coordinator."""

    records: SharePartition = field(default_factory=lambda: new_partition(0, LIMIT, 12))
    stored: tuple[StateBatch, ...] = ()
    stored_start: int = 0
    now_ms: int = 0
    holder: dict[int, str] = field(default_factory=dict)
    deliveries: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    pending: list[tuple[StateWrite, dict[int, int]]] = field(default_factory=list)

    def fetch(self, member: str, size: int) -> None:
        """The member acquires up to `size` records from the fetch offset on."""
        offset = self.records.fetch_offset
        if offset >= END or not self.records.may_acquire:
            return
        acquired = self.records.acquire(
            member, [Span(offset, min(offset + size, END) - 1)], deadline_ms=self.now_ms + 10, enough=size, at_most=MANY
        )
        for span in acquired:
            for at in range(span.first, span.last + 1):
                assert at not in self.holder, "two members hold one record"
                assert at not in self.done, "an acknowledged record is delivered again"
                self.deliveries[at] = self.deliveries.get(at, 0) + 1
                assert span.delivery_count == self.deliveries[at] <= LIMIT
                self.holder[at] = member

    def acknowledge(self, member: str, first: int, size: int, kind: int) -> None:
        """The member acknowledges `size` records, whether it holds them or not."""
        wanted = range(first, first + size)
        below = self.records.start_offset
        allowed = all(self.holder.get(at) == member for at in wanted if at >= below)
        busy = {at for _, kinds in self.pending for at in kinds}
        try:
            write = self.records.acknowledge(
                member, [Acknowledgement(first, first + size - 1, (kind,))], renewed_until_ms=self.now_ms + 10
            )
        except KafkaError:
            assert not allowed or busy.intersection(wanted)
            return
        assert allowed and not busy.intersection(at for at in wanted if at >= below)
        if write is not None:
            self.pending.append((write, {at: kind for at in wanted if at >= below}))

    def expire(self) -> None:
        """Time passes until all locks have expired."""
        self.now_ms += 10
        held = {at for at in self.holder if all(at not in kinds for _, kinds in self.pending)}
        write = self.records.expire_locks(self.now_ms)
        if write is not None:
            after = {
                at for one in self.records.ranges() if one.write == write.id for at in range(one.first, one.last + 1)
            }
            assert after <= held
            self.pending.append((write, dict.fromkeys(after, RELEASE)))

    def settle(self, at: int, *, stores: bool) -> None:
        """One write under way succeeds or fails."""
        if not self.pending:
            return
        write, kinds = self.pending.pop(at % len(self.pending))
        if not stores:
            self.records.abort(write.id, self.now_ms)
            return
        self.records.commit(write.id)
        self.stored_start = max(self.stored_start, write.start_offset)
        self.stored = combine_batches(self.stored, write.batches, self.stored_start)
        for offset, kind in kinds.items():
            del self.holder[offset]
            if kind != RELEASE or self.deliveries[offset] >= LIMIT:
                self.done.add(offset)

    def fail_over(self) -> None:
        """Another leader loads what is stored; writes under way are lost."""
        self.pending.clear()
        for offset in list(self.holder):
            del self.holder[offset]
        # What was delivered and not acknowledged is not counted: its count was never stored.
        counts = {
            at: batch.delivery_count for batch in self.stored for at in range(batch.first_offset, batch.last_offset + 1)
        }
        self.deliveries = {at: counts.get(at, 0) for at in range(self.stored_start, END)}
        self.records = new_partition(self.stored_start, LIMIT, 12)
        self.records.restore(self.stored)

    def check(self) -> None:
        """Raises AssertionError if a record below the start offset is not done, or ranges have
        gaps.
        """
        assert set(range(self.records.start_offset)) <= self.done, "a record is lost"
        at = self.records.start_offset
        for one in self.records.ranges():
            assert one.first == at and one.last >= one.first
            at = one.last + 1
        assert at == self.records.next_offset

    def finish(self) -> None:
        """Asserts that members can acknowledge all records that are not done."""
        for _ in range(4 * END):
            while self.pending:
                self.settle(0, stores=True)
            for member in MEMBERS:
                for at in [at for at, holder in self.holder.items() if holder == member]:
                    self.acknowledge(member, at, 1, ACCEPT)
            while self.pending:
                self.settle(0, stores=True)
            self.fetch("a", END)
        assert self.done == set(range(END))
        assert self.records.start_offset == END


STEPS = st.one_of(
    st.tuples(st.just("fetch"), st.sampled_from(MEMBERS), st.integers(1, 8)),
    st.tuples(
        st.just("acknowledge"), st.sampled_from(MEMBERS), st.integers(0, END), st.integers(1, 4), st.integers(0, 4)
    ),
    st.tuples(st.just("expire")),
    st.tuples(st.just("store"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 5)),
    st.tuples(st.just("fail over")),
)


@given(st.lists(STEPS, max_size=60))
def test_every_record_is_acknowledged_or_delivered_again(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for step in steps:
        match step:
            case ("fetch", str(member), int(size)):
                model.fetch(member, size)
            case ("acknowledge", str(member), int(first), int(size), int(kind)):
                model.acknowledge(member, first, size, kind)
            case ("expire",):
                model.expire()
            case ("store", int(at)):
                model.settle(at, stores=True)
            case ("fail", int(at)):
                model.settle(at, stores=False)
            case _:
                model.fail_over()
        model.check()
    model.finish()
