"""Which voter each observer copies the metadata log from."""

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metadata.fetch_sources import STANDBY_COUNT, assign_voter, standby_voters
from ottla_broker.metadata.image import BROKER_RESOURCE, BrokerRegistration, MetadataImage
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.voter_candidates import brokers_as_voters, node_key
from ottla_broker.metadata.voter_set import Voter, VoterCandidate, VoterSet, next_voter_set

LISTENER = "PLAINTEXT"


def registration(broker: int, *, fenced: bool = False, leaving: bool = False, node: str = "") -> BrokerRegistration:
    endpoints = {LISTENER: Endpoint(f"host-{broker}", 9092, "PLAINTEXT")}
    return BrokerRegistration(
        broker, 7, UUID(int=broker), endpoints, None, (UUID(int=1000 + broker),), fenced, leaving, node=node or None
    )


def voter(broker: int) -> Voter:
    return Voter(broker, UUID(int=1000 + broker), f"former-{broker}:9092")


def image_of(*brokers: BrokerRegistration) -> MetadataImage:
    return MetadataImage(brokers={broker.id: broker for broker in brokers})


def sources(image: MetadataImage, voters: VoterSet, leader: int) -> dict[int, int | None]:
    """Broker → the voter that it copies from; None: the leader."""
    assigned = {
        broker.broker: assign_voter(broker.key, image, voters, leader, LISTENER)
        for broker in brokers_as_voters(image, LISTENER)
    }
    return {broker: None if source is None else source.broker for broker, source in assigned.items()}


def test_observers_are_spread_evenly_over_the_voters_that_do_not_lead() -> None:
    image = image_of(*(registration(broker) for broker in range(300)))
    assigned = sources(image, (voter(0), voter(1), voter(2)), leader=1)
    assert Counter(assigned.values()) == {None: 3 + STANDBY_COUNT, 0: 148, 2: 147}
    assert assigned[3] is None and assigned[4] is None  # they become voters next


def test_a_source_has_the_address_of_its_registration() -> None:
    image = image_of(*(registration(broker) for broker in range(6)))
    source = assign_voter(voter(5).key, image, (voter(0), voter(1), voter(2)), 0, LISTENER)
    assert source is not None and source.address == "host-1:9092"


def test_the_leader_is_the_only_source_of_small_clusters_and_of_brokers_that_are_not_registered() -> None:
    five = image_of(*(registration(broker) for broker in range(5)))
    assert set(sources(five, (voter(0), voter(1), voter(2)), leader=0).values()) == {None}
    many = image_of(*(registration(broker) for broker in range(20)))
    assert set(sources(many, (voter(0),), leader=0).values()) == {None}
    assert assign_voter(voter(77).key, many, (voter(0), voter(1), voter(2)), 0, LISTENER) is None


def test_fenced_voters_serve_nobody() -> None:
    brokers = [registration(broker, fenced=broker == 1) for broker in range(9)]
    assigned = sources(image_of(*brokers), (voter(0), voter(1), voter(2)), leader=0)
    assert {assigned[broker] for broker in range(5, 9)} == {2}


def test_standby_voters_are_those_that_may_join_next() -> None:
    image = image_of(
        registration(0, node="a"),
        registration(1, node="b"),
        registration(2, node="c"),
        registration(3, node="a"),
        registration(4, fenced=True, node="d"),
        registration(5, leaving=True, node="d"),
        registration(6, node="d"),
        registration(7, node="e"),
        registration(8, node="f"),
    )
    image.configs[BROKER_RESOURCE, "6"] = {"controller.quorum.auto.join.enable": "false"}
    standby = standby_voters(image, (voter(0), voter(1), voter(2)), LISTENER)
    assert standby == {voter(7).key, voter(8).key}


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from("abcd")), min_size=4, max_size=30),
    st.sampled_from([1, 2, 3, 4]),
)
def test_the_next_voter_is_always_one_of_the_standby_voters(
    kinds: list[tuple[bool, bool, str]], voter_count: int
) -> None:
    image = image_of(
        *(
            registration(
                broker, fenced=fenced and broker >= voter_count, leaving=leaving and broker >= voter_count, node=node
            )
            for broker, (fenced, leaving, node) in enumerate(kinds)
        )
    )
    voters = tuple(voter(broker) for broker in range(min(voter_count, len(kinds) - 1)))
    standby = standby_voters(image, voters, LISTENER)
    candidates = [
        VoterCandidate(
            broker,
            is_caught_up=broker.key in standby or broker in voters,
            is_shutting_down=image.brokers[broker.broker].shutting_down,
            node=node_key(image.brokers[broker.broker]),
        )
        for broker in brokers_as_voters(image, LISTENER)
    ]
    all_caught_up = [VoterCandidate(one.voter, True, False, one.is_shutting_down, True, one.node) for one in candidates]
    unfenced = [one for one in all_caught_up if not image.brokers[one.voter.broker].fenced]
    fenced = [VoterCandidate(one.voter, False) for one in all_caught_up if image.brokers[one.voter.broker].fenced]

    def propose(among: list[VoterCandidate]) -> VoterSet | None:
        return next_voter_set(voters, voters[0].key, among, max_voters=5, may_remove_surplus=False)

    assert propose(candidates) == propose([*unfenced, *fenced])


@given(st.sets(st.integers(0, 400), min_size=6, max_size=60), st.integers(0, 4), st.data())
def test_a_restart_of_an_observer_moves_no_other_one(ids: set[int], leader: int, data: st.DataObject) -> None:
    brokers = sorted(ids)
    voters = tuple(voter(broker) for broker in brokers[:3])
    leads = brokers[leader % 3]
    before = sources(image_of(*(registration(broker) for broker in brokers)), voters, leads)
    counts = Counter(source for source in before.values() if source is not None)
    assert not counts or max(counts.values()) - min(counts.values()) <= 1
    observers = [broker for broker, source in before.items() if source is not None]
    if observers:
        down = data.draw(st.sampled_from(observers))
        after = sources(image_of(*(registration(broker, fenced=broker == down) for broker in brokers)), voters, leads)
        assert after == {**before, down: None}  # a fenced broker fetches from the leader
