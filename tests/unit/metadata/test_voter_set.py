"""The metadata log's voter set: majorities, the committed offset, and how voters change."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.image import BROKER_RESOURCE, MetadataImage
from ottla_broker.metadata.records import ConfigRecord
from ottla_broker.metadata.voter_candidates import may_join_voters
from ottla_broker.metadata.voter_set import (
    Voter,
    VoterCandidate,
    VoterSet,
    can_change_voters,
    committed_offset,
    has_majority,
    next_high_watermark,
    next_voter_set,
    parse_endpoint,
    replace_voter,
    target_voter_count,
)


def voter(broker: int, disk: int = 0) -> Voter:
    return Voter(broker, UUID(int=1000 * broker + disk), f"host-{broker}:9092")


def voters(*brokers: int) -> VoterSet:
    return tuple(voter(broker) for broker in brokers)


def candidate(
    broker: int, disk: int = 0, *, ready: bool = True, lost: bool = False, leaving: bool = False, node: str = ""
) -> VoterCandidate:
    return VoterCandidate(
        voter(broker, disk), is_caught_up=ready and not lost, is_lost=lost, is_shutting_down=leaving, node=node
    )


def propose(
    current: VoterSet, *candidates: VoterCandidate, max_voters: int = 3, may_remove_surplus: bool = False
) -> list[int] | None:
    proposal = next_voter_set(
        current, current[0].key, candidates, max_voters=max_voters, may_remove_surplus=may_remove_surplus
    )
    return None if proposal is None else [entry.broker for entry in proposal]


def test_a_record_is_committed_when_a_majority_has_it_and_a_record_of_the_leaders_epoch() -> None:
    a, b, c = (entry.key for entry in voters(1, 2, 3))
    acknowledged = {a: 20, b: 12}
    assert committed_offset(acknowledged, (a, b, c)) == 12
    assert next_high_watermark(acknowledged, (a, b, c), high_watermark=5, epoch_start_offset=11) == 12
    assert next_high_watermark(acknowledged, (a, b, c), high_watermark=5, epoch_start_offset=12) == 5
    assert next_high_watermark({a: 9, b: 9}, (a, b, c), high_watermark=15, epoch_start_offset=3) == 15


def test_half_of_the_voters_and_an_empty_set_are_no_majority() -> None:
    keys = [entry.key for entry in voters(1, 2, 3, 4)]
    assert not has_majority(keys[:2], keys) and has_majority(keys[:3], keys)
    assert not has_majority(keys, [])


@pytest.mark.parametrize(
    ("brokers", "limit", "count"),
    [(1, 3, 1), (2, 3, 1), (3, 3, 3), (9, 3, 3), (4, 5, 3), (5, 5, 5), (7, 1, 1), (0, 3, 1)],
)
def test_the_voter_count_is_the_largest_odd_number_up_to_brokers_and_limit_and_at_least_one(
    brokers: int, limit: int, count: int
) -> None:
    assert target_voter_count(brokers, limit) == count


def test_one_voter_changes_at_a_time_after_the_last_change_and_a_record_of_the_epoch_are_committed() -> None:
    def can_change(proposed: VoterSet, high_watermark: int = 21) -> bool:
        return can_change_voters(
            voters(1, 2), proposed, voters_offset=20, high_watermark=high_watermark, epoch_start_offset=15
        )

    assert can_change(voters(1, 2, 3)) and can_change(voters(1))
    assert not can_change(voters(1, 2, 3), high_watermark=20)
    assert not can_change(voters(1, 3)) and not can_change(voters(1, 2, 3, 4))
    assert not can_change_voters(voters(1, 2), voters(1), voters_offset=3, high_watermark=15, epoch_start_offset=15)
    assert can_change(replace_voter(voters(1, 2), Voter(2, voter(2).directory, "elsewhere:1")))


def test_one_voter_becomes_three_when_there_are_two_candidates() -> None:
    assert propose(voters(1), candidate(1), candidate(2)) is None
    assert propose(voters(1), candidate(1), candidate(2), candidate(3, ready=False)) is None
    assert propose(voters(1), candidate(1), candidate(2), candidate(3)) == [1, 2]
    assert propose(voters(1, 2), candidate(1), candidate(2), candidate(3)) == [1, 2, 3]
    assert propose(voters(1, 2, 3), *map(candidate, range(1, 7))) is None
    assert propose(voters(1, 2, 3), *map(candidate, range(1, 6)), max_voters=5) == [1, 2, 3, 4]


def test_a_lost_voter_is_removed_after_its_successor_was_added() -> None:
    three = (candidate(1), candidate(2), candidate(3, lost=True))
    assert propose(voters(1, 2, 3), *three) is None
    assert propose(voters(1, 2, 3), *three, candidate(4)) == [1, 2, 3, 4]
    assert propose(voters(1, 2, 3, 4), *three, candidate(4)) == [1, 2, 4]


def test_an_unregistered_voter_is_removed() -> None:
    assert propose(voters(1, 2, 3), candidate(1), candidate(2)) == [1, 2]
    assert propose(voters(1, 2), candidate(1), candidate(2)) is None
    assert propose(voters(1, 2), candidate(1), candidate(2), may_remove_surplus=True) == [1]
    assert propose(voters(1, 2), candidate(1), candidate(2, leaving=True)) == [1]


def test_a_wiped_voter_is_removed_and_added_again() -> None:
    assert propose(voters(1, 2, 3), candidate(1), candidate(2), candidate(3, disk=1)) == [1, 2]
    assert propose(voters(1, 2), candidate(1), candidate(2), candidate(3, disk=1)) == [1, 2, 3]


def test_a_voter_added_by_an_administrator_stays_for_a_while_and_a_removed_one_is_not_added_again() -> None:
    all_candidates = [candidate(broker) for broker in (1, 2, 3, 4)]
    assert propose(voters(1, 2, 3, 4), *all_candidates) is None
    assert propose(voters(1, 2, 3, 4), *all_candidates, may_remove_surplus=True) == [1, 3, 4]
    excluded = VoterCandidate(voter(3), is_caught_up=True, may_join=False)
    assert propose(voters(1, 2), candidate(1), candidate(2), excluded) is None


def test_every_leader_knows_from_the_log_which_broker_was_removed() -> None:
    image = MetadataImage()
    assert may_join_voters(image, 3)
    image.apply_records([(0, ConfigRecord(BROKER_RESOURCE, "3", "controller.quorum.auto.join.enable", "false"))])
    assert not may_join_voters(image, 3)
    assert may_join_voters(image, 2)
    image.apply_records([(1, ConfigRecord(BROKER_RESOURCE, "3", "controller.quorum.auto.join.enable", None))])
    assert may_join_voters(image, 3)


broker_ids = st.integers(1, 6)


@given(st.lists(broker_ids, min_size=1, max_size=5, unique=True), st.data())
def test_every_proposal_is_one_voter_away_and_keeps_the_leader(brokers: list[int], data: st.DataObject) -> None:
    current = voters(*brokers)
    candidates = [candidate(brokers[0])] + [
        data.draw(st.builds(candidate, st.just(broker), st.integers(0, 1), ready=st.booleans(), lost=st.booleans()))
        for broker in range(1, 7)
        if broker != brokers[0] and data.draw(st.booleans())
    ]
    for may_remove_surplus in (False, True):
        proposal = next_voter_set(
            current,
            current[0].key,
            candidates,
            max_voters=data.draw(st.sampled_from([1, 3, 5])),
            may_remove_surplus=may_remove_surplus,
        )
        if proposal is not None:
            assert current[0] in proposal
            assert can_change_voters(current, proposal, voters_offset=0, high_watermark=2, epoch_start_offset=1)
            assert len({entry.broker for entry in proposal}) == len(proposal)


def test_endpoints_are_read_from_addresses() -> None:
    assert parse_endpoint("host:9092") == ("host", 9092)
    assert parse_endpoint("[::1]:9092") == ("::1", 9092)
    assert parse_endpoint("") is None


def test_voters_are_spread_over_as_many_nodes_as_possible() -> None:
    on_a = [candidate(broker, node="a") for broker in (1, 2, 3)]
    on_b, on_c = candidate(4, node="b"), candidate(5, node="c")
    assert propose(voters(1), *on_a, on_b, on_c) == [1, 4]
    assert propose(voters(1, 4), *on_a, on_b, on_c) == [1, 4, 5]
    # Three voters are on one machine. Brokers of other machines take the places of two.
    assert propose(voters(1, 2, 3), *on_a) is None
    assert propose(voters(1, 2, 3), *on_a, on_b) == [1, 2, 3, 4]
    assert propose(voters(1, 2, 3, 4), *on_a, on_b) is None  # the surplus stays for a while
    assert propose(voters(1, 2, 3, 4), *on_a, on_b, may_remove_surplus=True) == [1, 3, 4]
    assert propose(voters(1, 3, 4), *on_a, on_b) is None  # no third node
    assert propose(voters(1, 3, 4), *on_a, on_b, on_c) == [1, 3, 4, 5]
    assert propose(voters(1, 4, 3, 5), *on_a, on_b, on_c, may_remove_surplus=True) == [1, 4, 5]
    assert propose(voters(1, 4, 5), *on_a, on_b, on_c) is None
