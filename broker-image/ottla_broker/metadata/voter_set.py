"""The voters of the metadata log, pure: majorities, changes of one voter at a time, and which
brokers are voters.

A voter set takes effect when its record is appended, before that is committed (KIP-853). Two voter
sets that differ by one voter have no two majorities without a common voter. So a leader changes one
voter at a time, and only after the previous change, and a record of its own epoch, are committed:
until then, a voter set of an earlier leader may still be in effect elsewhere.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from ottla_broker.metadata.features import KRAFT_VERSION

QuorumEndpoint = tuple[str, int]
"""Host and port."""

VOTER_COUNTS = (1, 3, 5)

KRAFT_VERSIONS = (KRAFT_VERSION.lowest, KRAFT_VERSION.highest)
"""The levels of `kraft.version` that this broker supports."""


class ReplicaKey(NamedTuple):
    """A broker and the id of its log directory (KIP-853): with a wiped disk it is another
    replica.
    """

    broker: int
    directory: UUID


class Voter(msgspec.Struct, frozen=True):
    """A broker whose copy of the metadata log counts. `directory`: the id of its log directory;
    `address`: host:port for other brokers (an IPv6 host in brackets), which may change, as may
    `kraft_versions`, the levels of `kraft.version` that it supports."""

    broker: int
    directory: UUID
    address: str = ""
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.broker, self.directory)

    @property
    def endpoint(self) -> QuorumEndpoint | None:
        return parse_endpoint(self.address)


VoterSet = tuple[Voter, ...]
"""The voters, in the order in which they were added."""


def parse_endpoint(address: str) -> QuorumEndpoint | None:
    """The host and port of `host:port` or `[IPv6]:port`; None for an empty address."""
    host, _, port = address.rpartition(":")
    return (host.strip("[]"), int(port)) if port else None


def majority_size(voters: int) -> int:
    return voters // 2 + 1


def has_majority(replicas: Collection[ReplicaKey], voters: Collection[ReplicaKey]) -> bool:
    """True if more than half of `voters`, of which there is at least one, are in `replicas`."""
    return bool(voters) and sum(voter in replicas for voter in voters) >= majority_size(len(voters))


def committed_offset(acknowledged_offsets: Mapping[ReplicaKey, int], voters: Collection[ReplicaKey]) -> int:
    """The offset below which a majority of the voters has all records on disk."""
    return sorted((acknowledged_offsets.get(voter, 0) for voter in voters), reverse=True)[
        majority_size(len(voters)) - 1
    ]


def next_high_watermark(
    acknowledged_offsets: Mapping[ReplicaKey, int],
    voters: Collection[ReplicaKey],
    *,
    high_watermark: int,
    epoch_start_offset: int,
) -> int:
    """The leader's high watermark after these acknowledgements. It does not move before a record of
    the leader's own epoch is on a majority: records of older epochs alone may still be replaced by
    another leader (Raft, 5.4.2)."""
    committed = committed_offset(acknowledged_offsets, voters)
    return max(high_watermark, committed) if committed > epoch_start_offset else high_watermark


def can_change_voters(
    current: VoterSet,
    proposed: VoterSet,
    *,
    voters_offset: int,
    high_watermark: int,
    epoch_start_offset: int,
) -> bool:
    """True if a leader may append `proposed`: it differs by at most one voter, and the record of
    `current`, at `voters_offset`, and one of the leader's own epoch are committed. A voter with a
    new address is the same voter."""
    changed = {voter.key for voter in current} ^ {voter.key for voter in proposed}
    is_settled = high_watermark > max(voters_offset, epoch_start_offset)
    return is_settled and len(changed) <= 1 and len(proposed) > 0


def replace_voter(voters: VoterSet, voter: Voter) -> VoterSet:
    """The voters, with the address and versions of `voter`."""
    return tuple(voter if known.key == voter.key else known for known in voters)


def without_voter(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    return tuple(voter for voter in voters if voter.key != key)


# --- which brokers are voters


def order_candidates(voters: VoterSet, candidates: Iterable[Voter], node: Mapping[int, str]) -> list[Voter]:
    """The candidates in the order in which they become voters. Voters are on as many nodes as they
    can be: candidates on a node without a voter come first. `node`: by broker, equal for brokers of
    one node.
    """
    voters_on = Counter(node.get(voter.broker) for voter in voters)
    return sorted(candidates, key=lambda voter: (voters_on[node[voter.broker]] > 0, voter.broker))


def target_voter_count(brokers: int, max_voters: int) -> int:
    """The largest of 1, 3 and 5, up to `max_voters`, for which there are enough brokers: an even
    number tolerates no more failures than the odd one below it."""
    return max((count for count in VOTER_COUNTS if count <= min(brokers, max_voters)), default=1)


class VoterCandidate(msgspec.Struct, frozen=True):
    """A registered broker as the leader observes it. `is_caught_up`: its disk has all committed
    records; `is_lost`: it has not fetched for long; `is_shutting_down`: it has requested a
    controlled shutdown; `may_join`: no administrator has removed it from the voters. `node`: equal
    for brokers of one node; empty if it is unknown."""

    voter: Voter
    is_caught_up: bool
    is_lost: bool = False
    is_shutting_down: bool = False
    may_join: bool = True
    node: str = ""

    @property
    def is_ready(self) -> bool:
        return self.is_caught_up and self.may_join and not (self.is_lost or self.is_shutting_down)


def next_voter_set(
    voters: VoterSet,
    leader: ReplicaKey,
    candidates: Sequence[VoterCandidate],
    *,
    max_voters: int,
    may_remove_surplus: bool,
) -> VoterSet | None:
    """The voter set to change to, one voter away; None when no change is needed. The leader never
    removes itself.

    A voter whose disk was wiped is removed: it has no records left to count. A lost voter is
    replaced: a candidate is added, then the lost one is removed. It is removed without a
    replacement only when there are too many voters. The number of voters grows only from one odd
    number to the next, and only if there are candidates for both steps. With two voters, one that
    is shutting down is removed while it still runs, because the other could not commit its removal
    alone.
    A candidate on a node without a voter replaces a voter that shares its node.
    `may_remove_surplus`: whether a live voter beyond the target number may be removed; that is one
    that shares its node, or the one added first.
    """
    by_broker = {candidate.voter.broker: candidate for candidate in candidates}
    known = {voter.key for voter in voters}
    node = {candidate.voter.broker: candidate.node or f"broker {candidate.voter.broker}" for candidate in candidates}
    voters_on = Counter(node.get(voter.broker) for voter in voters)
    ready = order_candidates(
        voters,
        (candidate.voter for candidate in candidates if candidate.is_ready and candidate.voter.key not in known),
        node,
    )
    others = [voter for voter in voters if voter.key != leader]
    wiped = [v for v in others if v.broker in by_broker and by_broker[v.broker].voter.key != v.key]
    lost = [v for v in others if v.broker not in by_broker or by_broker[v.broker].is_lost]
    leaving = [v for v in others if v.broker in by_broker and by_broker[v.broker].is_shutting_down]
    crowded = [v for v in others if v.broker in node and voters_on[node[v.broker]] > 1]
    target = target_voter_count(len(candidates), max_voters)
    if wiped:
        return without_voter(voters, wiped[0].key)
    if leaving and len(voters) == 2:
        return without_voter(voters, leaving[0].key)
    if len(voters) > target and (lost or may_remove_surplus):
        return without_voter(voters, (lost or crowded or others)[0].key)
    if ready and (lost or (len(voters) < target and (len(voters) % 2 == 0 or len(ready) >= 2))):
        return (*voters, ready[0])
    if ready and crowded and len(voters) == target and not voters_on[node[ready[0].broker]]:
        return (*voters, ready[0])
    return None
