"""Rules of the metadata log's quorum, pure: which records are committed, when a voter may lead, which brokers are voters.

A record is committed when a majority of the voters has it on disk. A broker that becomes leader first hears from so
many voters (itself included) that every majority contains one of them, copies the most advanced of their logs, and has
their promise to follow no older epoch.

Invariant: a committed record is in the log of every later leader. It holds because the voters that committed it and the
voters that a new leader hears from always share one, in the same voter set or in two that differ by one voter. So
voters are added and removed one at a time, and while a change is in flight both voter sets must have a majority
(`committed_offset` over both). The in-sync rule of ordinary partitions gives less: here the metadata can still change
while one voter of three is down.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import msgspec

MAX_VOTERS = 5
DEFAULT_VOTERS = 3
BROKERS_FOR_MAX_VOTERS = 5

ReplicaKey = tuple[int, UUID]
"""A broker with the id of its log directory (KIP-853): with a wiped disk it is another replica."""


class Voter(msgspec.Struct, frozen=True):
    """A broker whose copy of the metadata log counts for commits. `directory`: the id of its log directory; `address`:
    host:port for other brokers (an IPv6 host in brackets), which may change."""

    broker: int
    directory: UUID
    address: str = ""

    @property
    def key(self) -> ReplicaKey:
        return self.broker, self.directory

    @property
    def endpoint(self) -> tuple[str, int] | None:
        host, _, port = self.address.rpartition(":")
        return (host.strip("[]"), int(port)) if port else None


class EpochAndOffset(NamedTuple):
    """The end of a log: the epoch of its last record (−1 without one) and the offset after it; also the id of a
    snapshot. A larger value is more advanced. Kafka's OffsetAndEpoch."""

    epoch: int
    offset: int


def majority_size(voters: int) -> int:
    return voters // 2 + 1


def election_quorum_size(voters: int) -> int:
    """The smallest number of voters that share one with every majority."""
    return voters - majority_size(voters) + 1


def committed_offset(acknowledged_offsets: Mapping[ReplicaKey, int], voter_sets: Iterable[Collection[Voter]]) -> int:
    """The offset below which a majority of every voter set has all records on disk."""
    return min(
        sorted((acknowledged_offsets.get(voter.key, 0) for voter in voters), reverse=True)[
            majority_size(len(voters)) - 1
        ]
        for voters in voter_sets
    )


def can_propose_voters(
    voters: Collection[Voter],
    acknowledged_offsets: Mapping[ReplicaKey, int],
    *,
    high_watermark: int,
    epoch_start_offset: int,
) -> bool:
    """True if a majority of the new voters has everything that may be committed: the records below the high watermark
    and those at the start of the leader's epoch, which an earlier leader may have committed."""
    return committed_offset(acknowledged_offsets, [voters]) >= max(high_watermark, epoch_start_offset)


def target_voter_count(brokers: int) -> int:
    return max(1, min(brokers, MAX_VOTERS if brokers >= BROKERS_FOR_MAX_VOTERS else DEFAULT_VOTERS))


@dataclass(frozen=True, slots=True)
class VoterCandidate:
    """A registered broker as the leader observes it. `is_caught_up`: its disk has all committed records; `is_alive`: it
    fetches; `is_shutting_down`: it has requested a controlled shutdown."""

    voter: Voter
    is_caught_up: bool
    is_alive: bool
    is_shutting_down: bool = False


def next_voter_set(
    voters: Sequence[Voter], leader: Voter, candidates: Sequence[VoterCandidate], brokers: int
) -> tuple[Voter, ...] | None:
    """The voter set to change to, one voter away; None when no change is needed.

    A voter whose disk was wiped is removed: it has no records left to count. A dead voter is removed only if a candidate
    can replace it, because the smaller set tolerates no more failures than the larger one, and an isolated leader must
    not become the only voter. With two voters, one that is shutting down is removed while it still runs, because the
    other could not commit its removal alone. The leader never removes itself.
    """
    by_broker = {candidate.voter.broker: candidate for candidate in candidates}
    known = [voter.key for voter in voters]
    ready = sorted(
        (
            c.voter
            for c in candidates
            if c.is_alive and c.is_caught_up and not c.is_shutting_down and c.voter.key not in known
        ),
        key=lambda voter: voter.broker,
    )
    others = [voter for voter in voters if voter.key != leader.key]
    wiped = [v for v in others if v.broker in by_broker and by_broker[v.broker].voter.key != v.key]
    dead = [v for v in others if not (v.broker in by_broker and by_broker[v.broker].is_alive)]
    leaving = [v for v in others if v.broker in by_broker and by_broker[v.broker].is_shutting_down]
    target = target_voter_count(brokers)
    if wiped:
        return _without(voters, wiped[0])
    if leaving and len(voters) == 2:
        return _without(voters, leaving[0])
    if len(voters) > target:
        return _without(voters, dead[0] if dead else max(others, key=lambda voter: voter.broker))
    if ready and len(voters) < target:
        return (*voters, ready[0])
    if ready and dead:
        return _without(voters, dead[0])
    return None


def _without(voters: Sequence[Voter], removed: Voter) -> tuple[Voter, ...]:
    return tuple(voter for voter in voters if voter.key != removed.key)
