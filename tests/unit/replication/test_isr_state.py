"""ISR proposals of a leader, also with a controller that processes proposals late, twice or
never.
"""

from dataclasses import dataclass, field

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.followers import Follower
from ottla_broker.replication.isr_state import IsrChange, IsrState
from tests.unit.replication.leader_partition import partition_record


def allow_all(_: Follower) -> bool:
    return True


def pending(isr_state: IsrState) -> IsrChange:
    assert isr_state.pending is not None
    return isr_state.pending


def test_followers_that_may_join_are_proposed_and_count_until_newer_metadata() -> None:
    isr_state, record = IsrState(), partition_record((1,))
    assert isr_state.maximal_isr(record.isr) == (1,)
    assert not isr_state.propose_with(record, [Follower(2)], lambda _: False)
    assert isr_state.propose_with(record, [Follower(2), Follower(3)], lambda it: it.broker == 3)
    proposal = pending(isr_state)
    assert (proposal.isr, proposal.partition_epoch) == ((1, 3), record.partition_epoch)
    assert set(isr_state.maximal_isr(record.isr)) == {1, 3}
    isr_state.update_registration(record)
    assert isr_state.pending is proposal
    isr_state.update_registration(partition_record((1, 2), partition_epoch=record.partition_epoch + 1))
    assert isr_state.pending is None


def test_one_proposal_is_pending_at_a_time_and_followers_are_considered_again_after_it() -> None:
    isr_state, record = IsrState(), partition_record((1,))
    two, three = Follower(2, log_end=5), Follower(3, log_end=4)
    assert isr_state.propose_with(record, [two], allow_all)
    assert not isr_state.propose_with(record, [three], allow_all)
    assert not isr_state.propose_without(record, {1})
    assert not isr_state.has_deferred_followers, "not before the proposal is decided"
    assert isr_state.reject(pending(isr_state))
    assert isr_state.has_deferred_followers
    assert isr_state.take_candidates([two, three], 5) == [two, three]
    assert not isr_state.has_deferred_followers
    assert isr_state.take_candidates([two, three], 5) == [two], "a follower that lacks records will fetch again"


def test_only_lagging_members_are_removed() -> None:
    isr_state, record = IsrState(), partition_record((1, 2, 3))
    assert not isr_state.propose_without(record, {4})
    assert isr_state.propose_without(record, {3, 4})
    assert pending(isr_state).isr == (1, 2)
    assert isr_state.maximal_isr(record.isr) == (1, 2, 3, 1, 2), (
        "a removed member counts until the removal is committed"
    )


def test_outcome_of_a_former_proposal_is_ignored() -> None:
    isr_state, record = IsrState(), partition_record((1,))
    assert isr_state.propose_with(record, [Follower(2)], allow_all)
    old = pending(isr_state)
    isr_state = IsrState()
    assert isr_state.propose_with(record, [Follower(3)], allow_all)
    current = pending(isr_state)
    assert not isr_state.reject(old)
    assert not isr_state.withdraw(record, old)
    assert isr_state.pending is current


@dataclass
class Controller:
    """`current`: the partition's record. `sent`: proposals that may still arrive."""

    current: PartitionRecord = field(default_factory=lambda: partition_record((1,)))
    sent: list[IsrChange] = field(default_factory=list)

    def receive(self, proposal: IsrChange) -> None:
        if proposal.partition_epoch == self.current.partition_epoch:
            self.change_isr(proposal.isr)

    def change_isr(self, isr: tuple[int, ...]) -> None:
        self.current = msgspec.structs.replace(self.current, isr=isr, partition_epoch=self.current.partition_epoch + 1)


EVENTS = st.sampled_from(
    ["join 2", "join 3", "leave 2", "leave 3", "received", "rejected", "withdrawn", "fenced", "metadata"]
)


@example([("join 2", 0), ("withdrawn", 0), ("received", 0)])
@example([("join 2", 0), ("withdrawn", 0), ("withdrawn", 0), ("received", 0)])
@given(st.lists(st.tuples(EVENTS, st.integers(0, 9)), max_size=60))
def test_rule_3_maximal_isr_includes_the_isr_of_the_controller_after_any_events(
    events: list[tuple[str, int]],
) -> None:
    isr_state, controller = IsrState(), Controller()
    record = controller.current
    for event, choice in events:
        proposal = isr_state.pending
        match event.split():
            case ["join", broker] if int(broker) not in record.isr:
                isr_state.propose_with(record, [Follower(int(broker))], allow_all)
            case ["leave", broker]:
                isr_state.propose_without(record, {int(broker)})
            case ["received"] if controller.sent:
                controller.receive(controller.sent[choice % len(controller.sent)])
            case ["rejected"] if (
                proposal is not None and not proposal.replaced
            ):  # a proposal of the current ISR is not rejected
                if proposal.partition_epoch == controller.current.partition_epoch:
                    controller.sent.remove(proposal)  # its only copy has arrived
                    isr_state.reject(proposal)
            case ["withdrawn"] if proposal is not None:
                isr_state.withdraw(record, proposal)
            case ["fenced"]:
                controller.change_isr(controller.current.isr[:1])
            case ["metadata"]:
                record = controller.current
                isr_state.update_registration(record)
        if isr_state.pending is not None and isr_state.pending is not proposal:
            controller.sent.append(isr_state.pending)
        assert set(controller.current.isr) <= set(isr_state.maximal_isr(record.isr))
