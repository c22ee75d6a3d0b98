"""What the leader of a partition asks for: another ISR. Checked (design rules 1 and 4), and turned into the partition's next state: pure.

Invariant: nobody joins an ISR but by its leader's word, and only as the broker that is registered now: unfenced, not about to stop, under its
registered epoch. So a wiped disk, which registers anew, never passes as its old self. A proposal is taken only on the very state that the leader
saw (leader epoch and partition epoch); one that rests on another state means that one of the two must refresh.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from ottla_broker.metadata.election import ElectionCandidates, TopicElectionRules, elect_leader, with_next_epochs
from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.metadata.reassignment import complete_reassignment
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

UNKNOWN_BROKER_EPOCH = -1  # a broker epoch that its sender did not know


@dataclass(frozen=True, slots=True)
class IsrChangeRequest:
    """`isr`: (broker, its epoch as the leader knows it) of each member. Epochs: those of the state that the leader saw."""

    topic: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]


def apply_isr_change(
    old: PartitionRecord,
    proposal: IsrChangeRequest,
    leader: int,
    brokers: Mapping[int, BrokerRegistration],
    voters: ElectionCandidates,
    rules: TopicElectionRules,
) -> PartitionRecord:
    """The partition's next state by the word of broker `leader`. A reassignment whose last target has come ends with it. An ISR that is as
    it was raises the partition epoch all the same: so its leader makes sure that nothing it proposed before can still happen.

    KafkaError NOT_CONTROLLER (the leader knows newer metadata than we), FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST,
    INELIGIBLE_REPLICA.
    """
    check_epochs(old, proposal)
    if leader != old.leader:
        raise KafkaError(ErrorCode.invalid_request, f"broker {leader} does not lead the partition; {old.leader} does")
    members = [broker for broker, _ in proposal.isr]
    if leader not in members or len(set(members)) != len(members) or not set(members) <= set(old.replicas):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"ISR {members} must hold the leader {leader} and distinct replicas, which are {list(old.replicas)}",
        )
    for broker, epoch in proposal.isr:
        check_isr_member(brokers.get(broker), broker, epoch, joins=broker not in old.isr)
    trusted = (*old.isr, *old.eligible)
    wanted = elect_leader(old, members, trusted, voters, rules)
    new = with_next_epochs(old, complete_reassignment(wanted, voters, rules) or wanted)
    return new or msgspec.structs.replace(old, partition_epoch=old.partition_epoch + 1)


def check_epochs(old: PartitionRecord, proposal: IsrChangeRequest) -> None:
    """NOT_CONTROLLER, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION."""
    if proposal.leader_epoch > old.leader_epoch or proposal.partition_epoch > old.partition_epoch:
        raise KafkaError(ErrorCode.not_controller, "the leader knows a newer state of the partition than this broker")
    if proposal.leader_epoch < old.leader_epoch:
        raise KafkaError(
            ErrorCode.fenced_leader_epoch, f"leader epoch {proposal.leader_epoch}, but it is {old.leader_epoch}"
        )
    if proposal.partition_epoch < old.partition_epoch:
        raise KafkaError(
            ErrorCode.invalid_update_version,
            f"partition epoch {proposal.partition_epoch}, but it is {old.partition_epoch}",
        )


def check_isr_member(registered: BrokerRegistration | None, broker: int, epoch: int, *, joins: bool) -> None:
    """INELIGIBLE_REPLICA when it may not be in an ISR."""
    if registered is None:
        why = "is not registered"
    elif registered.fenced:
        why = "is fenced"
    elif epoch not in (UNKNOWN_BROKER_EPOCH, registered.epoch):
        why = f"is registered with epoch {registered.epoch}, not {epoch}"
    elif joins and registered.shutting_down:
        why = "is about to stop"
    else:
        return
    raise KafkaError(ErrorCode.ineligible_replica, f"broker {broker} {why}")
