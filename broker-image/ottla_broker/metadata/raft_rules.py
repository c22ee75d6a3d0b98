"""Elections of the metadata log's leader by KRaft's rules, pure (KIP-595, pre-vote: KIP-996,
directory ids: KIP-853).

Each function takes the state of one replica and an event, and returns the next state. There is no
clock, disk or network here. The caller does what a change of state asks for, in this order:

1. From this moment on nothing is acknowledged in an older epoch: neither a follower's fetch nor a
   leader's own sync. If `stored` differs, it is written and synced before any message leaves that
   follows from the new state.
2. In PROSPECTIVE and CANDIDATE, a vote of `epoch` is requested from every other voter (a pre-vote
   in PROSPECTIVE). The answers, and connections that fail, come back through `count_vote`.
3. In LEADER, the log of `epoch` is led; in FOLLOWER, that of `leader` is fetched.
4. A timer of the role runs from the change on (`election_timeout_s`). When it expires: `expire`.

Invariants: a replica grants one vote in an epoch, and only to a log that is at least as advanced as
its own, so no two replicas lead in one epoch, and every leader has all committed records. An epoch
never goes back.
"""

from enum import StrEnum
from random import Random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import ReplicaKey, has_majority

INITIAL_EPOCH = 0
MIN_BACKOFF_S = 0.03
NO_VOTES: frozenset[ReplicaKey] = frozenset()


class EpochAndOffset(NamedTuple):
    """The end of a log: the epoch of its last record (−1 if it is empty) and the offset after it;
    also the id of a snapshot. A larger value is more advanced. Kafka's OffsetAndEpoch."""

    epoch: int
    offset: int


class Role(StrEnum):
    """Kafka's names. UNATTACHED with a vote was called Voted before KIP-996."""

    UNATTACHED = "Unattached"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    FOLLOWER = "Follower"
    LEADER = "Leader"
    RESIGNED = "Resigned"


class ElectionState(NamedTuple):
    """State that a replica must persist: the newest epoch it knows, its leader (−1: unknown), and
    its own vote in it.
    """

    epoch: int = INITIAL_EPOCH
    leader: int = NO_LEADER
    voted: ReplicaKey | None = None


class RaftState(msgspec.Struct, frozen=True):
    """`granted`, `refused`: answers in the election of PROSPECTIVE or CANDIDATE. `hears_leader`: a
    FOLLOWER has fetched from its leader, or from a voter that hears it, and the fetch timeout has
    not expired since.
    `failed_elections`: since a leader was last heard."""

    role: Role = Role.UNATTACHED
    epoch: int = INITIAL_EPOCH
    leader: int = NO_LEADER
    voted: ReplicaKey | None = None
    granted: frozenset[ReplicaKey] = NO_VOTES
    refused: frozenset[ReplicaKey] = NO_VOTES
    hears_leader: bool = False
    failed_elections: int = 0

    @property
    def stored(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader, self.voted)

    @property
    def activity(self) -> tuple[Role, int, int]:
        """Identifies the work of the replica, which starts other work when this changes."""
        return self.role, self.epoch, self.leader

    @property
    def is_electing(self) -> bool:
        return self.role in (Role.PROSPECTIVE, Role.CANDIDATE)

    @property
    def doubts_leader(self) -> bool:
        """True if nobody should be sent to the leader of the epoch: it has resigned, or was not
        heard since an election without a winner.
        """
        is_unheard = not self.hears_leader and (self.is_electing or self.failed_elections > 0)
        return self.role is Role.RESIGNED or is_unheard


class Replica(msgspec.Struct, frozen=True):
    """The replica that decides: its key, the voters of its log (the newest appended set), the end
    of its log. `was_voter`: it is in an earlier set, and does not know that the newest is
    committed.
    """

    key: ReplicaKey
    voters: frozenset[ReplicaKey]
    log_end: EpochAndOffset
    was_voter: bool = False

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters

    @property
    def may_lead(self) -> bool:
        """A removed voter may be the only one whose log has the record of its removal, so that the
        others cannot be elected. It leads until that is committed (section 4.2.2 of Ongaro's
        thesis), and its own vote does not count.
        """
        return self.is_voter or self.was_voter


class VoteRequest(msgspec.Struct, frozen=True):
    """`epoch`: the epoch in which the candidate wants to lead; in a pre-vote the newest that it
    knows. `log_end`: end of its log.
    """

    candidate: ReplicaKey
    epoch: int
    log_end: EpochAndOffset
    is_pre_vote: bool = False


def restart(stored: ElectionState, me: ReplicaKey) -> RaftState:
    """The state of a new process. It is neither leader nor candidate in an epoch of an earlier
    process, which may have sent messages that this one does not know.
    """
    epoch, leader, voted = stored
    if leader in (NO_LEADER, me.broker):
        return RaftState(epoch=epoch, voted=voted, failed_elections=1)
    return RaftState(Role.FOLLOWER, epoch, leader, voted)


# --- votes


def answer_vote(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
    """The next state, and whether the vote is granted. A replica that is not a voter in its own log
    grants votes, too: its log may not have the voter set of which it is a member.
    """
    if request.epoch < state.epoch:
        return state, False
    state = observe_epoch(state, request.epoch, NO_LEADER, me)
    if request.log_end < me.log_end:
        return state, False
    if request.is_pre_vote:
        return state, state.role is not Role.LEADER and not state.hears_leader
    if state.voted is not None or state.leader != NO_LEADER:
        return state, state.voted == request.candidate
    return RaftState(epoch=state.epoch, voted=request.candidate), True


def count_vote(
    state: RaftState, voter: ReplicaKey, request_state: RaftState, *, granted: bool, me: Replica
) -> RaftState:
    """The state after a response to the vote request that was sent in `request_state`. `granted` is
    False also for a failed connection.
    """
    if (state.role, state.epoch) != (request_state.role, request_state.epoch) or not state.is_electing:
        return state
    if granted:
        return _elect_if_won(replace(state, granted=state.granted | {voter}), me)
    state = replace(state, refused=state.refused | {voter})
    can_win = has_majority(me.voters - (state.refused - state.granted), me.voters)
    return state if can_win else _lose_election(state)


def _elect_if_won(state: RaftState, me: Replica) -> RaftState:
    """The next state if a majority of the voters has granted their votes: LEADER, or CANDIDATE
    after a pre-vote.
    """
    if not has_majority(state.granted, me.voters):
        return state
    if state.role is Role.PROSPECTIVE:
        return stand_for_election(state, me)
    return replace(
        state, role=Role.LEADER, leader=me.key.broker, granted=NO_VOTES, refused=NO_VOTES, failed_elections=0
    )


def stand_for_election(state: RaftState, me: Replica) -> RaftState:
    """Becomes CANDIDATE in the next epoch, with its own vote. It does not wait for voters that gave
    no pre-vote. If two replicas become candidates at the same time while the former leader is
    silent, both try again soon.
    """
    silent = me.voters - state.granted if state.role is Role.PROSPECTIVE else NO_VOTES
    candidate = replace(
        state,
        role=Role.CANDIDATE,
        epoch=state.epoch + 1,
        leader=NO_LEADER,
        voted=me.key,
        granted=frozenset({me.key}),
        refused=silent,
        hears_leader=False,
    )
    return _elect_if_won(candidate, me)


def _lose_election(state: RaftState) -> RaftState:
    """Follows the leader of the epoch again if there is one, which other voters may still hear."""
    role = Role.UNATTACHED if state.leader == NO_LEADER else Role.FOLLOWER
    return replace(state, role=role, granted=NO_VOTES, refused=NO_VOTES, failed_elections=state.failed_elections + 1)


# --- leaders


def observe_epoch(state: RaftState, epoch: int, leader: int, me: Replica) -> RaftState:
    """The state after a message that names an epoch, and its leader if the sender knows it (else
    −1). If the message names this broker, an earlier process of it led: that counts as no leader.
    """
    if leader == me.key.broker:
        leader = NO_LEADER
    if epoch > state.epoch and leader == NO_LEADER:
        return RaftState(epoch=epoch, failed_elections=state.failed_elections)
    if epoch > state.epoch:
        return RaftState(Role.FOLLOWER, epoch, leader)
    is_news = epoch == state.epoch and leader != NO_LEADER and state.leader == NO_LEADER
    return RaftState(Role.FOLLOWER, epoch, leader, state.voted) if is_news else state


def hear_leader(state: RaftState) -> RaftState:
    """The state after a response to a fetch from this epoch's leader, or from a voter that hears
    it."""
    return replace(state, hears_leader=True, failed_elections=0) if state.role is Role.FOLLOWER else state


def end_quorum_epoch(
    state: RaftState, epoch: int, leader: int, successors: tuple[ReplicaKey, ...], me: Replica
) -> RaftState:
    """The state after the leader's EndQuorumEpoch. The first successor becomes a candidate at once,
    without a pre-vote, for which the other voters may not be ready. Each further successor waits
    longer.
    """
    state = observe_epoch(state, epoch, leader, me)
    if state.role is not Role.FOLLOWER or (state.epoch, state.leader) != (epoch, leader) or not me.is_voter:
        return state
    if successors[:1] == (me.key,):
        return stand_for_election(state, me)
    rank = successors.index(me.key) if me.key in successors else len(successors)
    return replace(state, hears_leader=False, failed_elections=rank + 1)


def resign(state: RaftState) -> RaftState:
    """The leader resigns: it stops, or check-quorum has failed. Its vote stays."""
    return replace(state, role=Role.RESIGNED, leader=NO_LEADER) if state.role is Role.LEADER else state


# --- timeouts


def expire(state: RaftState, me: Replica) -> RaftState:
    """The timer of the role has expired, or the leader's port refuses connections. A broker that
    may not lead looks for another leader.
    """
    if state.role is Role.LEADER:
        return state
    if not me.may_lead:
        return RaftState(epoch=state.epoch, voted=state.voted)
    if state.is_electing:
        return _lose_election(state)
    prospective = replace(
        state, role=Role.PROSPECTIVE, granted=frozenset({me.key}), refused=NO_VOTES, hears_leader=False
    )
    return _elect_if_won(prospective, me)


class ElectionTimeouts(msgspec.Struct, frozen=True):
    """controller.quorum.election.timeout.ms, controller.quorum.fetch.timeout.ms,
    controller.quorum.election.backoff.max.ms.
    """

    election_s: float = 1.0
    fetch_s: float = 2.0
    backoff_max_s: float = 1.0

    @property
    def check_quorum_timeout_s(self) -> float:
        """Time after which a leader without a majority resigns: 1.5 fetch timeouts, as in Kafka."""
        return 1.5 * self.fetch_s


def election_timeout_s(state: RaftState, me: Replica, timeouts: ElectionTimeouts, random: Random) -> float | None:
    """Time for which the replica stays in its role; None: without end. Random, so that voters do
    not all become candidates at once. After elections without a winner the interval doubles.
    """
    if state.role is Role.LEADER or (not me.may_lead and state.role is not Role.FOLLOWER):
        return None
    if me.voters == {me.key}:
        return 0.0  # nobody else can lead
    if state.failed_elections and not state.is_electing and not state.hears_leader:
        longest_s = MIN_BACKOFF_S * 2 ** min(state.failed_elections, 16)
        return random.uniform(MIN_BACKOFF_S, max(min(longest_s, timeouts.backoff_max_s), MIN_BACKOFF_S))
    if state.role is Role.FOLLOWER:
        return timeouts.fetch_s * random.uniform(1.0, 1.1)
    return timeouts.election_s * random.uniform(1.0, 2.0)
