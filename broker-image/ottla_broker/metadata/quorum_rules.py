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

from ottla_broker.metadata.register import Member, MemberKey

MOST_MEMBERS = 5
USUAL_MEMBERS = 3
BROKERS_FOR_MOST = 5


class EpochAndOffset(NamedTuple):
    """How far a log goes: the epoch of its last record (−1: it has none), and the offset after it. The larger one is the more advanced."""

    epoch: int
    offset: int


def majority_size(members: int) -> int:
    return members // 2 + 1


def needed_to_lead(members: int) -> int:
    """So many members share one with every majority."""
    return members - majority_size(members) + 1


def commit_point(ends: Mapping[MemberKey, int], memberships: Iterable[Collection[Member]]) -> int:
    """The offset below which everything is on a majority of every membership. `ends`: how far each member's disk is known to go."""
    return min(
        sorted((ends.get(member.key, 0) for member in members), reverse=True)[majority_size(len(members)) - 1]
        for members in memberships
    )


def may_be_asked_for(
    members: Collection[Member], ends: Mapping[MemberKey, int], *, high_watermark: int, epoch_start: int
) -> bool:
    """Whether the leader may ask the register for a membership: a majority of it has everything that may be committed.

    That is what lies below the high watermark, and what the leader took over when its epoch began, which any earlier leader may have committed.
    """
    return commit_point(ends, [members]) >= max(high_watermark, epoch_start)


def wanted_members(brokers: int) -> int:
    """How many members a cluster of so many brokers should have."""
    return max(1, min(brokers, MOST_MEMBERS if brokers >= BROKERS_FOR_MOST else USUAL_MEMBERS))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that follows the metadata log. `caught_up`: its disk has everything committed, as of a moment ago; `alive`: it fetches; `leaving`: it
    has said that it is about to stop."""

    member: Member
    caught_up: bool
    alive: bool
    leaving: bool = False


def next_membership(
    members: Sequence[Member], leader: Member, candidates: Sequence[Candidate], brokers: int
) -> tuple[Member, ...] | None:
    """The membership that the leader should ask the register for now, one step away; None when it is as it should be.

    A member whose disk was wiped has nothing left to count on. One that is dead makes room only where a living candidate is ready to take its
    place: without one the smaller membership could bear no more losses than the larger, and a leader that is cut off from all others would be left
    as the only member, which nobody may succeed. Of two, one that is leaving is taken out while it is still there: alone the other can go on, with
    a member that is gone it could not. The leader never takes itself out.
    """
    by_broker = {candidate.member.broker: candidate for candidate in candidates}
    known = [member.key for member in members]
    ready = sorted(
        (c.member for c in candidates if c.alive and c.caught_up and not c.leaving and c.member.key not in known),
        key=lambda m: m.broker,
    )
    others = [m for m in members if m.key != leader.key]
    wiped = [m for m in others if m.broker in by_broker and by_broker[m.broker].member.key != m.key]
    dead = [m for m in others if not (m.broker in by_broker and by_broker[m.broker].alive)]
    leaving = [m for m in others if m.broker in by_broker and by_broker[m.broker].leaving]
    wanted = wanted_members(brokers)
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


def _without(members: Sequence[Member], gone: Member) -> tuple[Member, ...]:
    return tuple(member for member in members if member.key != gone.key)
