"""Who keeps the metadata log: the next membership is one step away, and never one that makes the log hang on a leader that hears nobody."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.quorum_rules import Candidate, commit_point, majority, needed_to_lead, next_membership
from ottla_broker.metadata.register import Member


def member(broker: int, directory: int = 0) -> Member:
    return Member(broker, UUID(int=directory or broker), f"host-{broker}:9092")


def living(*brokers: int) -> list[Candidate]:
    return [Candidate(member(broker), caught_up=True, alive=True) for broker in brokers]


def dead(*brokers: int) -> list[Candidate]:
    return [Candidate(member(broker), caught_up=True, alive=False) for broker in brokers]


ONE, TWO, THREE, FOUR = map(member, (1, 2, 3, 4))


def test_members_come_one_at_a_time_up_to_what_the_cluster_wants() -> None:
    assert next_membership([ONE], ONE, living(1, 2, 3), 3) == (ONE, TWO)
    assert next_membership([ONE, TWO], ONE, living(1, 2, 3), 3) == (ONE, TWO, THREE)
    assert next_membership([ONE, TWO, THREE], ONE, living(1, 2, 3), 3) is None


def test_a_leader_that_hears_nobody_does_not_become_the_only_member() -> None:
    assert next_membership([ONE, TWO, THREE], ONE, living(1) + dead(2, 3), 3) is None
    assert next_membership([ONE, TWO], ONE, living(1) + dead(2), 2) is None


def test_a_dead_member_makes_room_for_one_that_is_ready() -> None:
    candidates = living(1, 2, 4) + dead(3)
    assert next_membership([ONE, TWO, THREE], ONE, candidates, 4) == (ONE, TWO)
    assert next_membership([ONE, TWO], ONE, candidates, 4) == (ONE, TWO, FOUR)


def test_a_wiped_member_goes_at_once_and_comes_back_as_another() -> None:
    again = Candidate(member(3, 33), caught_up=True, alive=True)
    assert next_membership([ONE, TWO, THREE], ONE, [*living(1, 2), again], 3) == (ONE, TWO)
    assert next_membership([ONE, TWO], ONE, [*living(1, 2), again], 3) == (ONE, TWO, again.member)


def test_of_too_many_the_dead_go_first() -> None:
    assert next_membership([ONE, TWO, THREE], ONE, living(1, 3), 2) == (ONE, THREE)
    assert next_membership([ONE, TWO, THREE], THREE, living(1, 2, 3), 2) == (ONE, THREE)


@given(st.integers(1, 7), st.data())
def test_who_takes_over_has_heard_one_that_has_everything_committed(members: int, data: st.DataObject) -> None:
    everybody = [member(broker) for broker in range(1, members + 1)]
    ends = {one.key: data.draw(st.integers(0, 9)) for one in everybody}
    committed = commit_point(ends, [everybody])
    assert sum(end >= committed for end in ends.values()) >= majority(members)
    heard = data.draw(st.permutations(everybody))[: needed_to_lead(members)]
    assert max(ends[one.key] for one in heard) >= committed
