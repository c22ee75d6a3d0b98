"""Finds the lost voters of a metadata log without a leader, and plans the recovery of the cluster
from the remaining disks.

Invariants: a recovery is planned only while the voters that answer are no majority, and continues
from the most advanced disk that answers. The cluster that it creates has another id, so brokers
that were away cannot join it by mistake: their old majority is refused by name. A recovery that was
interrupted is planned again from what is observed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla_operator.formatting import format_brokers

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class VoterKey:
    """A broker with the id of its log directory: with another disk it is another voter
    (KIP-853).
    """

    broker: int
    directory: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class MetadataReplica:
    """A broker's replica of the metadata log, as the broker describes it.

    `address`: the address at which it was asked. `inter_broker_address`: its address for other
    brokers. `cluster_id`: None if its disk belongs to no cluster. `previous_cluster_id`: the
    cluster that its cluster was recovered from. `epoch`: the newest that it knows. `log_end`: epoch
    and offset.
    """

    broker: int
    directory: str
    address: str
    cluster_id: str | None
    previous_cluster_id: str | None
    leader: int
    epoch: int
    log_end: tuple[int, int]
    high_watermark: int
    voters: tuple[VoterKey, ...]
    inter_broker_address: str = ""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The voters as the most advanced replica names them. `alive`: voters that answer. `lost`:
    voter → why it cannot return. `silent`: voters that did not answer, and may return."""

    replica: MetadataReplica
    alive: tuple[int, ...]
    lost: Mapping[int, str]
    silent: tuple[int, ...]

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(sorted(it.broker for it in self.replica.voters))

    @property
    def majority(self) -> int:
        return len(self.replica.voters) // 2 + 1

    @property
    def has_majority(self) -> bool:
        return len(self.alive) >= self.majority

    @property
    def is_lost(self) -> bool:
        """True if no majority of the voters can return."""
        return len(self.voters) - len(self.lost) < self.majority


@dataclass(frozen=True, slots=True)
class Recovery:
    """`leader`: the replica from which the cluster continues. `followers`: replicas that copy its
    log. `cluster_id`: id of the recovered cluster; `epoch`: epoch of its log. `survivors`: brokers
    whose disks take part; the others are unregistered."""

    state: QuorumState
    leader: MetadataReplica
    followers: tuple[MetadataReplica, ...]
    cluster_id: str
    epoch: int
    survivors: tuple[int, ...]

    @property
    def steps(self) -> tuple[MetadataReplica, ...]:
        """Replicas in the order in which they are changed. The leader is the last: before it leads
        the new cluster, brokers of the old one still answer, and an interrupted recovery can
        continue.
        """
        return (*self.followers, self.leader)


class RecoveryRefused(Exception):
    """The reason why a cluster must not or need not be recovered."""


def most_advanced(replicas: Collection[MetadataReplica]) -> MetadataReplica | None:
    """The replica with the newest last epoch, and among equals the longest log, of those that
    belong to a cluster. None if none does.
    """
    members = [it for it in replicas if it.cluster_id is not None]
    return max(members, key=lambda it: (it.log_end, -it.broker), default=None)


def observe_quorum(
    replicas: Collection[MetadataReplica], existing: Collection[int] | None = None
) -> QuorumState | None:
    """The state of the voters; None while no replica that answers knows any. `existing`: brokers
    that must exist; a voter outside of these is lost for good. None if that is unknown."""
    replica = most_advanced([it for it in replicas if it.voters])
    if replica is None:
        return None
    directories = {it.broker: it.directory for it in replicas}
    alive, lost, silent = [], {}, []
    for voter in replica.voters:
        if directories.get(voter.broker) == voter.directory:
            alive.append(voter.broker)
        elif voter.broker in directories:
            lost[voter.broker] = "has another disk"
        elif existing is not None and voter.broker not in existing:
            lost[voter.broker] = "was removed"
        else:
            silent.append(voter.broker)
    return QuorumState(replica, tuple(sorted(alive)), lost, tuple(sorted(silent)))


def plan_recovery(replicas: Sequence[MetadataReplica], new_cluster_id: str) -> Recovery:
    """Plans the recovery of a cluster from its replicas. If an interrupted recovery has moved some
    to a new cluster, that one is continued; otherwise the id is `new_cluster_id`. Raises
    RecoveryRefused.
    """
    if leader := next((it for it in replicas if it.leader != NO_LEADER), None):
        raise RecoveryRefused(
            f"broker {leader.broker} has a leader, broker {leader.leader}: there is nothing to recover"
        )
    old = {it.cluster_id for it in replicas if it.voters}
    moved = [it for it in replicas if not it.voters and it.previous_cluster_id in old - {None}]
    members = [it for it in replicas if it.cluster_id is not None]
    if len({it.cluster_id for it in members if it not in moved}) > 1 or len({it.cluster_id for it in moved}) > 1:
        message = ", ".join(f"broker {it.broker}: {it.cluster_id}" for it in members)
        raise RecoveryRefused(f"the brokers belong to different clusters ({message}); name those of one cluster")
    state = observe_quorum(replicas)
    if state is None:
        asked_brokers = format_brokers([it.broker for it in replicas])
        raise RecoveryRefused(f"no disk of {asked_brokers} has the metadata of a cluster: restore a disk first")
    if state.has_majority:
        raise RecoveryRefused(
            f"a majority of the voters answers (brokers {_format_ids(state.alive)} of {_format_ids(state.voters)}) and "
            "elects a leader by itself; wait, or see the brokers' logs"
        )
    return Recovery(
        state,
        state.replica,
        tuple(it for it in members if it is not state.replica and it not in moved),
        next((it.cluster_id for it in moved if it.cluster_id), new_cluster_id),
        max(it.epoch for it in replicas) + 1,
        tuple(sorted(it.broker for it in members)),
    )


@dataclass(frozen=True, slots=True)
class QuorumLoss:
    """`is_final`: no majority can return without a recovery."""

    message: str
    is_final: bool


def find_quorum_loss(
    replicas: Sequence[MetadataReplica], existing: Collection[int], cluster_id: str | None
) -> QuorumLoss | None:
    """Describes why a cluster without a leader cannot elect one; None if no cause is known.
    `existing`: brokers that must exist. `cluster_id`: id of the cluster, as recorded outside of its
    disks; None if it has none yet.
    """
    state = observe_quorum(replicas, existing)
    if state is not None:
        return None if state.has_majority else QuorumLoss(describe_loss(state), state.is_lost)
    answering = {it.broker for it in replicas if it.cluster_id is None}
    if cluster_id is None or not answering >= set(existing):
        return None
    message = f"no disk of {format_brokers(existing)} has the metadata of cluster {cluster_id}"
    return QuorumLoss(message, True)


def describe_loss(state: QuorumState) -> str:
    """Describes the voters that are lost or do not answer."""
    away = [f"broker {broker} {reason}" for broker, reason in sorted(state.lost.items())]
    away += [f"broker {broker} does not answer" for broker in state.silent]
    voters = f"{len(state.alive)} of the voters {_format_ids(state.voters)} of the metadata log answer"
    return f"{voters}, and a majority is {state.majority}: {'; '.join(away)}"


def _format_ids(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
