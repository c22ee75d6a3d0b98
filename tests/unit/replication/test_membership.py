"""Who a leader wants in sync, and who counts meanwhile; searched against a controller that finds proposals late, twice, or never."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.followers import Follower
from ottla_broker.replication.isr_state import IsrChange, IsrState
from tests.unit.replication.leading import state


def anybody(_: Follower) -> bool:
    return True


def pending(membership: IsrState) -> IsrChange:
    assert membership.pending is not None
    return membership.pending


def test_those_who_may_are_proposed_and_count_until_the_metadata_have_moved_on() -> None:
    membership, known = IsrState(), state((1,))
    assert membership.maximal_isr(known.isr) == (1,)
    assert not membership.propose_with(known, [Follower(2)], lambda _: False)
    assert membership.propose_with(known, [Follower(2), Follower(3)], lambda one: one.broker == 3)
    proposal = pending(membership)
    assert (proposal.isr, proposal.partition_epoch) == ((1, 3), known.partition_epoch)
    assert set(membership.maximal_isr(known.isr)) == {1, 3}
    membership.update_registration(known)
    assert membership.pending is proposal
    membership.update_registration(state((1, 2), partition_epoch=known.partition_epoch + 1))
    assert membership.pending is None


def test_one_at_a_time_and_who_was_turned_away_is_looked_at_once() -> None:
    membership, known = IsrState(), state((1,))
    two, three = Follower(2, log_end=5), Follower(3, log_end=4)
    assert membership.propose_with(known, [two], anybody)
    assert not membership.propose_with(known, [three], anybody)
    assert not membership.propose_without(known, {1})
    assert not membership.has_waiting_followers, "not before it is decided"
    assert membership.reject(pending(membership))
    assert membership.has_waiting_followers
    assert membership.take_waiting([two, three], 5) == [two, three]
    assert not membership.has_waiting_followers
    assert membership.take_waiting([two, three], 5) == [two], "who has something to fetch will show that it lives"


def test_only_who_is_late_leaves() -> None:
    membership, known = IsrState(), state((1, 2, 3))
    assert not membership.propose_without(known, {4})
    assert membership.propose_without(known, {3, 4})
    assert pending(membership).isr == (1, 2)
    assert membership.maximal_isr(known.isr) == (1, 2, 3, 1, 2), "who leaves counts until it has"


def test_what_is_not_on_its_way_any_more_changes_nothing() -> None:
    membership, known = IsrState(), state((1,))
    assert membership.propose_with(known, [Follower(2)], anybody)
    old = pending(membership)
    membership = IsrState()
    assert membership.propose_with(known, [Follower(3)], anybody)
    now = pending(membership)
    assert not membership.reject(old)
    assert not membership.withdraw(known, old)
    assert membership.pending is now


@dataclass
class Controller:
    """`sent`: proposals of which a copy may still come."""

    now: PartitionRecord = field(default_factory=lambda: state((1,)))
    sent: list[IsrChange] = field(default_factory=list)

    def finds(self, proposal: IsrChange) -> None:
        if proposal.partition_epoch == self.now.partition_epoch:
            self.changes(proposal.isr)

    def changes(self, isr: tuple[int, ...]) -> None:
        self.now = msgspec.structs.replace(self.now, isr=isr, partition_epoch=self.now.partition_epoch + 1)


WHAT = st.sampled_from(["join 2", "join 3", "leave 2", "leave 3", "found", "refused", "withdrawn", "fenced", "told"])


@example([("join 2", 0), ("withdrawn", 0), ("found", 0)])
@example([("join 2", 0), ("withdrawn", 0), ("withdrawn", 0), ("found", 0)])
@given(st.lists(st.tuples(WHAT, st.integers(0, 9)), max_size=60))
def test_rule_3_whatever_the_controller_makes_of_it_all_who_are_in_sync_count(
    happens: list[tuple[str, int]],
) -> None:
    membership, controller = IsrState(), Controller()
    known = controller.now
    for what, which in happens:
        proposal = membership.pending
        match what.split():
            case ["join", broker] if int(broker) not in known.isr:
                membership.propose_with(known, [Follower(int(broker))], anybody)
            case ["leave", broker]:
                membership.propose_without(known, {int(broker)})
            case ["found"] if controller.sent:
                controller.finds(controller.sent[which % len(controller.sent)])
            case ["refused"] if proposal is not None and not proposal.replaced:  # the ISR as it is is not refused
                if proposal.partition_epoch == controller.now.partition_epoch:
                    controller.sent.remove(proposal)  # the only copy has come
                    membership.reject(proposal)
            case ["withdrawn"] if proposal is not None:
                membership.withdraw(known, proposal)
            case ["fenced"]:
                controller.changes(controller.now.isr[:1])
            case ["told"]:
                known = controller.now
                membership.update_registration(known)
        if membership.pending is not None and membership.pending is not proposal:
            controller.sent.append(membership.pending)
        assert set(controller.now.isr) <= set(membership.maximal_isr(known.isr))
