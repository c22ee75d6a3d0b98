"""When a record of the metadata log is committed, and who may take over its lead: pure.

The register names the members of the metadata log. A record is committed when a majority of them has it on disk; a broker that takes the lead
must first hear from so many members (itself included) that every majority has one among them, take over the most advanced log of those, and
have their word that they follow no older epoch.

Invariant: a committed record is in the log of every later leader. It is kept because a commit and a take-over, in the same membership or in two
that differ by one member, always share a member; so members come and go one at a time, and while a change is on its way to the register,
both memberships must agree (`commit_point` over both). This is more than the in-sync rule of ordinary partitions gives: with one member of three
dead and the register away, the metadata can still change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla_broker.metadata.register import ReplicaKey, Voter

MAX_VOTERS = 5
DEFAULT_VOTERS = 3
BROKERS_FOR_MAX_VOTERS = 5


class EpochAndOffset(NamedTuple):
    """How far a log goes: the epoch of its last record (−1: it has none), and the offset after it. The larger one is the more advanced."""

    epoch: int
    offset: int


def majority_size(members: int) -> int:
    return members // 2 + 1


def election_quorum_size(members: int) -> int:
    """So many members share one with every majority."""
    return members - majority_size(members) + 1


def committed_offset(ends: Mapping[ReplicaKey, int], memberships: Iterable[Collection[Voter]]) -> int:
    """The offset below which everything is on a majority of every membership. `ends`: how far each member's disk is known to go."""
    return min(
        sorted((ends.get(member.key, 0) for member in members), reverse=True)[majority_size(len(members)) - 1]
        for members in memberships
    )


def can_propose_voters(
    members: Collection[Voter], ends: Mapping[ReplicaKey, int], *, high_watermark: int, epoch_start: int
) -> bool:
    """Whether the leader may ask the register for a membership: a majority of it has everything that may be committed.

    That is what lies below the high watermark, and what the leader took over when its epoch began, which any earlier leader may have committed.
    """
    return committed_offset(ends, [members]) >= max(high_watermark, epoch_start)


def target_voter_count(brokers: int) -> int:
    """How many members a cluster of so many brokers should have."""
    return max(1, min(brokers, MAX_VOTERS if brokers >= BROKERS_FOR_MAX_VOTERS else DEFAULT_VOTERS))


@dataclass(frozen=True, slots=True)
class VoterCandidate:
    """A broker that follows the metadata log. `caught_up`: its disk has everything committed, as of a moment ago; `alive`: it fetches; `leaving`: it
    has said that it is about to stop."""

    voter: Voter
    is_caught_up: bool
    is_alive: bool
    is_shutting_down: bool = False


def next_voter_set(
    members: Sequence[Voter], leader: Voter, candidates: Sequence[VoterCandidate], brokers: int
) -> tuple[Voter, ...] | None:
    """The membership that the leader should ask the register for now, one step away; None when it is as it should be.

    A member whose disk was wiped has nothing left to count on. One that is dead makes room only where a living candidate is ready to take its
    place: without one the smaller membership could bear no more losses than the larger, and a leader that is cut off from all others would be left
    as the only member, which nobody may succeed. Of two, one that is leaving is taken out while it is still there: alone the other can go on, with
    a member that is gone it could not. The leader never takes itself out.
    """
    by_broker = {candidate.voter.broker: candidate for candidate in candidates}
    known = [member.key for member in members]
    ready = sorted(
        (
            c.voter
            for c in candidates
            if c.is_alive and c.is_caught_up and not c.is_shutting_down and c.voter.key not in known
        ),
        key=lambda m: m.broker,
    )
    others = [m for m in members if m.key != leader.key]
    wiped = [m for m in others if m.broker in by_broker and by_broker[m.broker].voter.key != m.key]
    dead = [m for m in others if not (m.broker in by_broker and by_broker[m.broker].is_alive)]
    leaving = [m for m in others if m.broker in by_broker and by_broker[m.broker].is_shutting_down]
    wanted = target_voter_count(brokers)
    if wiped:
        return _without(members, wiped[0])
    if leaving and len(members) == 2:
        return _without(members, leaving[0])
    if len(members) > wanted:
        return _without(members, dead[0] if dead else max(others, key=lambda m: m.broker))
    if ready and len(members) < wanted:
        return (*members, ready[0])
    if ready and dead:
        return _without(members, dead[0])
    return None


def _without(members: Sequence[Voter], gone: Voter) -> tuple[Voter, ...]:
    return tuple(member for member in members if member.key != gone.key)
