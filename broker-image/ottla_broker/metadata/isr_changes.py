"""AlterPartition: validates a leader's ISR change (rule 1, rule 4) and returns the partition's next
state. Pure.

Invariant: a replica joins an ISR only at its leader's request, and only if its broker is unfenced,
not shutting down and registered with the broker epoch in the request. So a broker with a wiped
disk, which registers again, is not taken for its former incarnation. (The epoch −1, which Ottla's
leaders do not send for a replica that joins, is not compared, as in Kafka.) A request must name the
current leader epoch and partition epoch; otherwise the leader or this broker has stale metadata.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.metadata.election import (
    ElectionCandidates,
    TopicElectionRules,
    elect_leader,
    trusted_replicas,
    with_next_epochs,
)
from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.metadata.reassignment import complete_reassignment
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

UNKNOWN_BROKER_EPOCH = -1  # in requests of leaders that do not know it


class IsrChangeRequest(msgspec.Struct, frozen=True):
    """`isr`: (broker, broker epoch) of each member, as the leader knows them. `leader_epoch`,
    `partition_epoch`: those of the state that the request changes.
    """

    topic: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]


def apply_isr_change(
    old: PartitionRecord,
    request: IsrChangeRequest,
    leader: int,
    brokers: Mapping[int, BrokerRegistration],
    candidates: ElectionCandidates,
    rules: TopicElectionRules,
) -> PartitionRecord:
    """The partition's next state at the request of broker `leader`. A reassignment whose last
    target joins is completed. An unchanged ISR raises the partition epoch too, so that none of the
    leader's earlier requests can still be applied.

    Raises NOT_CONTROLLER (the leader has newer metadata than this broker), FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA.
    """
    check_epochs(old, request)
    if leader != old.leader:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"broker {leader} does not lead the partition; broker {old.leader} does (-1: none)",
        )
    isr = [broker for broker, _ in request.isr]
    if leader not in isr or len(set(isr)) != len(isr) or not set(isr) <= set(old.replicas):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"the ISR {isr} must contain the leader {leader} and distinct replicas of {list(old.replicas)}",
        )
    for broker, epoch in request.isr:
        check_isr_member(brokers.get(broker), broker, epoch, joins=broker not in old.isr)
    changed = elect_leader(old, isr, trusted_replicas(old), candidates, rules)
    new = with_next_epochs(old, complete_reassignment(changed, candidates, rules) or changed)
    return new or replace(old, partition_epoch=old.partition_epoch + 1)


def check_epochs(old: PartitionRecord, request: IsrChangeRequest) -> None:
    """Raises NOT_CONTROLLER, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION."""
    if request.leader_epoch > old.leader_epoch or request.partition_epoch > old.partition_epoch:
        raise KafkaError(ErrorCode.not_controller, "the leader has newer metadata of the partition than this broker")
    if request.leader_epoch < old.leader_epoch:
        raise KafkaError(
            ErrorCode.fenced_leader_epoch, f"leader epoch {request.leader_epoch}, here it is {old.leader_epoch}"
        )
    if request.partition_epoch < old.partition_epoch:
        raise KafkaError(
            ErrorCode.invalid_update_version,
            f"partition epoch {request.partition_epoch}, here it is {old.partition_epoch}",
        )


def check_isr_member(registered: BrokerRegistration | None, broker: int, epoch: int, *, joins: bool) -> None:
    """Raises INELIGIBLE_REPLICA."""
    if registered is None:
        reason = "is not registered"
    elif registered.fenced:
        reason = "is fenced"
    elif epoch not in (UNKNOWN_BROKER_EPOCH, registered.epoch):
        reason = f"is registered with epoch {registered.epoch}, not {epoch}"
    elif joins and registered.shutting_down:
        reason = "is shutting down"
    else:
        return
    raise KafkaError(ErrorCode.ineligible_replica, f"broker {broker} {reason}")
