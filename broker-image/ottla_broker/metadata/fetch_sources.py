"""From which broker an observer copies the metadata log.

Voters fetch from the leader, because their fetches commit records and count for check-quorum. So do
the observers that the leader would make voters next: it has to know how far their logs go. All
other observers copy committed records from the voters that are not the leader, so that the leader's
work for them does not grow with their number. Every broker derives the same assignment from the
same image, with equally many observers for each voter.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.voter_candidates import brokers_as_voters, may_join_voters, node_key
from ottla_broker.metadata.voter_set import ReplicaKey, Voter, VoterSet, order_candidates

STANDBY_COUNT: Final = 2  # the number of voters grows by two
VOTER_RETRY_S: Final = 30.0  # until a voter that failed is tried again in the same epoch
LEADER_ONLY_S: Final = 30.0  # how long an observer stays with the leader that asked for its fetches


def standby_voters(image: MetadataImage, voters: VoterSet, listener: str) -> frozenset[ReplicaKey]:
    """The observers that the leader would make voters next (`voter_set.next_voter_set`), as far as
    the image shows. `listener`: the name of the inter-broker listener."""
    known = {voter.key for voter in voters}
    candidates = [
        broker
        for broker in brokers_as_voters(image, listener)
        if broker.key not in known
        and _is_serving(image.brokers[broker.broker])
        and may_join_voters(image, broker.broker)
    ]
    nodes = {broker.id: node_key(broker) for broker in image.brokers.values()}
    return frozenset(voter.key for voter in order_candidates(voters, candidates, nodes)[:STANDBY_COUNT])


def _is_serving(broker: BrokerRegistration) -> bool:
    return not broker.fenced and not broker.shutting_down


def assign_voter(me: ReplicaKey, image: MetadataImage, voters: VoterSet, leader: int, listener: str) -> Voter | None:
    """The voter from which observer `me` copies; None if it copies from the leader. A broker that
    starts or stops copies from the leader, but keeps its place, so that a restart changes nothing
    for the others.
    """
    brokers = {broker.key: broker for broker in brokers_as_voters(image, listener)}
    if me not in brokers or not _is_serving(image.brokers[me.broker]):
        return None
    sources = [brokers[key] for key in sorted(_live_voters(image.brokers, voters, leader)) if key in brokers]
    known = {voter.key for voter in voters} | standby_voters(image, voters, listener)
    observers = sorted(brokers.keys() - known)
    if not sources or me in known:
        return None
    return sources[observers.index(me) % len(sources)]


def _live_voters(brokers: Mapping[int, BrokerRegistration], voters: VoterSet, leader: int) -> list[ReplicaKey]:
    return [
        voter.key
        for voter in voters
        if voter.broker != leader and voter.broker in brokers and not brokers[voter.broker].fenced
    ]


class FetchSources:
    """Chooses the source of one broker, `me`. A voter that failed is excluded for VOTER_RETRY_S.
    `now`: the event loop's clock. Only the leader is chosen until `is_caught_up` is set, when the
    broker has been as current as its leader for the first time."""

    def __init__(self, me: ReplicaKey, log: MetadataLog, listener: str, now: Callable[[], float]) -> None:
        self.is_caught_up = False
        self._me = me
        self._log = log
        self._listener = listener
        self._now = now
        self._excluded: dict[tuple[int, ReplicaKey], float] = {}  # epoch and voter → until when
        self._leader_only_until_s = now()

    def choose(self, leader: int, epoch: int) -> Voter | None:
        """The voter to copy from, with the address of its registration; None if the leader is the
        source."""
        if not self.may_copy:
            return None
        voter = assign_voter(self._me, self._log.image, self._log.voters.latest, leader, self._listener)
        if voter is None or self._excluded.get((epoch, voter.key), 0.0) > self._now():
            return None
        return voter

    @property
    def may_copy(self) -> bool:
        """True while this broker need not fetch from the leader."""
        is_voter = any(voter.key == self._me for voter in self._log.voters.latest)
        return self.is_caught_up and not is_voter and self._now() >= self._leader_only_until_s

    def exclude(self, voter: Voter, epoch: int) -> None:
        """Called when `voter` was unreachable, behind or no follower of the leader of `epoch`."""
        now_s = self._now()
        self._excluded = {key: until_s for key, until_s in self._excluded.items() if until_s > now_s}
        self._excluded[epoch, voter.key] = now_s + VOTER_RETRY_S

    def prefer_leader(self) -> None:
        """Called when the leader has asked this broker for its fetches."""
        self._leader_only_until_s = self._now() + LEADER_ONLY_S
