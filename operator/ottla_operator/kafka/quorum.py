"""The quorum of the metadata log: leader, voters and observers (DescribeQuorum; KIP-595,
KIP-836).
"""

from dataclasses import dataclass
from typing import Final

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import PartitionData as QuorumState
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.wire.errors import ErrorCode
from ottla_operator.kafka.client import KafkaClient, none_on_error, raise_for_error

METADATA_LOG: Final = "__cluster_metadata"
IN_SYNC_WITHIN_MS: Final = 2000
"""A replica is in sync if it had every committed record within this time; the default of Kafka's
controller.quorum.fetch.timeout.ms."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A broker's replica of the metadata log.

    `log_end_offset`: −1 if unknown. `is_in_sync`: it had every committed record within the last
    IN_SYNC_WITHIN_MS.
    """

    broker: int
    is_voter: bool
    log_end_offset: int
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """`leader`: the active controller. `replicas` are sorted by broker."""

    leader: int
    epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]


async def describe_quorum(client: KafkaClient) -> QuorumDescription | None:
    """None if the brokers do not support DescribeQuorum."""
    topic = TopicData(topic_name=TopicName(METADATA_LOG), partitions=(PartitionData(partition_index=i32(0)),))
    request = DescribeQuorumRequest(topics=(topic,))
    response = await none_on_error(client.send_to_controller(request), ErrorCode.unsupported_version)
    if response is None:
        return None
    raise_for_error(response.error_code, response.error_message, "metadata log")
    state: QuorumState = response.topics[0].partitions[0]
    raise_for_error(state.error_code, state.error_message, "metadata log")
    leader_time_ms = max((it.last_caught_up_timestamp for it in state.current_voters), default=-1)
    replicas = [
        QuorumReplica(
            int(it.replica_id),
            is_voter,
            int(it.log_end_offset),
            is_in_sync=it.last_caught_up_timestamp >= leader_time_ms - IN_SYNC_WITHIN_MS,
        )
        for is_voter, group in ((True, state.current_voters), (False, state.observers))
        for it in group
    ]
    return QuorumDescription(
        int(state.leader_id),
        int(state.leader_epoch),
        int(state.high_watermark),
        tuple(sorted(replicas, key=lambda it: it.broker)),
    )


async def list_voters(client: KafkaClient) -> frozenset[int]:
    """Ids of the voters; empty if the brokers do not support DescribeQuorum."""
    quorum = await describe_quorum(client)
    return frozenset(it.broker for it in quorum.replicas if it.is_voter) if quorum else frozenset()
