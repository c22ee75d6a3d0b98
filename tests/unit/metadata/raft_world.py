"""The state of the model of the metadata quorum (`raft_model`): replicas with logs and votes,
requests in flight, and the history that the invariants need. All values are immutable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.metadata import raft_rules, voter_set
from ottla_broker.metadata.raft_rules import ElectionState, EpochAndOffset, RaftState, Replica, Role, VoteRequest
from ottla_broker.metadata.voter_set import ReplicaKey

Voters = frozenset[ReplicaKey]


@dataclass(frozen=True)
class Rules:
    """The broker's decisions, which tests replace by wrong ones. `syncs_first`: a vote is on disk
    before it is answered. `directories_differ`: an empty disk gets another directory id.
    """

    answer_vote: Callable[[RaftState, VoteRequest, Replica], tuple[RaftState, bool]] = raft_rules.answer_vote
    count_vote: Callable[..., RaftState] = raft_rules.count_vote
    expire: Callable[[RaftState, Replica], RaftState] = raft_rules.expire
    restart: Callable[[ElectionState, ReplicaKey], RaftState] = raft_rules.restart
    next_high_watermark: Callable[..., int] = voter_set.next_high_watermark
    can_change_voters: Callable[..., bool] = voter_set.can_change_voters
    syncs_first: bool = True
    directories_differ: bool = True


class Entry(NamedTuple):
    """A record of the metadata log. `voters`: None unless it is a voter set."""

    epoch: int
    voters: Voters | None = None


@lru_cache(maxsize=1 << 14)
def newest_voters(log: tuple[Entry, ...]) -> tuple[int, Voters]:
    """The newest voter set in a log, and its offset."""
    for offset in reversed(range(len(log))):
        if (voters := log[offset].voters) is not None:
            return offset, voters
    return -1, frozenset()


class Node(NamedTuple):
    """A broker. `stored` and `log[:synced]` are on its disk. Of a leader, `epoch_start` is the
    offset at which its epoch starts, and `acknowledged` the log end of each follower.
    """

    key: ReplicaKey
    raft: RaftState
    stored: ElectionState
    log: tuple[Entry, ...] = ()
    synced: int = 0
    high_watermark: int = 0
    process: int = 0
    epoch_start: int = 0
    acknowledged: frozenset[tuple[ReplicaKey, int]] = frozenset()

    @property
    def voters_offset(self) -> int:
        return newest_voters(self.log)[0]

    @property
    def voters(self) -> Voters:
        return newest_voters(self.log)[1]

    @property
    def log_end(self) -> EpochAndOffset:
        return EpochAndOffset(self.log[-1].epoch if self.log else -1, len(self.log))

    @property
    def replica(self) -> Replica:
        later = (it.voters for it in self.log[self.high_watermark :] if it.voters is not None)
        was_voter = any(self.key in it for it in (newest_voters(self.log[: self.high_watermark])[1], *later))
        return Replica(self.key, self.voters, self.log_end, was_voter)

    @property
    def epochs(self) -> LeaderEpochs:
        starts = [(e.epoch, at) for at, e in enumerate(self.log) if at == 0 or self.log[at - 1].epoch != e.epoch]
        return LeaderEpochs("", starts)

    @property
    def leads(self) -> bool:
        return self.raft.role is Role.LEADER


class SentVoteRequest(NamedTuple):
    """A vote request in flight to every voter. `process`: the candidate's incarnation that sent
    it.
    """

    request: VoteRequest
    process: int


class Resignation(NamedTuple):
    """An EndQuorumEpoch request in flight to every voter."""

    epoch: int
    leader: int
    successors: tuple[ReplicaKey, ...]


class Budget(NamedTuple):
    """Numbers of events of each kind that may still happen in a bounded search."""

    epochs: int = 2  # the newest epoch that a replica may reach
    crashes: int = 0
    wipes: int = 0
    records: int = 0
    changes: int = 0  # of voters
    resignations: int = 0


class RaftWorld(NamedTuple):
    """A state of the whole cluster. The last three fields are history, for the invariants:
    `leaders` has (epoch, leader, process), `votes` (epoch, voter, candidate), `committed` each
    committed record with the epoch of the leader that committed it.
    """

    nodes: tuple[Node, ...]
    budget: Budget
    sent: frozenset[SentVoteRequest | Resignation] = frozenset()
    leaders: frozenset[tuple[int, ReplicaKey, int]] = frozenset()
    votes: frozenset[tuple[int, ReplicaKey, ReplicaKey]] = frozenset()
    committed: tuple[tuple[Entry, int], ...] = ()

    def with_node(self, at: int, node: Node) -> "RaftWorld":
        return self._replace(nodes=(*self.nodes[:at], node, *self.nodes[at + 1 :]))

    def spend(self, **used: int) -> "RaftWorld":
        """Returns the world with a smaller budget."""
        return self._replace(budget=self.budget._replace(**{k: getattr(self.budget, k) - n for k, n in used.items()}))


def key(broker: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(broker, UUID(int=broker * 100 + disk))


def world_of(brokers: int, voters: int, budget: Budget) -> RaftWorld:
    """Returns a cluster of brokers 1 to `brokers`, founded by broker 1, whose first `voters`
    brokers are voters.
    """
    founded = (Entry(0, frozenset(key(broker) for broker in range(1, voters + 1))),)
    nodes = (Node(key(broker), RaftState(), ElectionState(), founded, 1) for broker in range(1, brokers + 1))
    return RaftWorld(tuple(nodes), budget, committed=((founded[0], 0),))
