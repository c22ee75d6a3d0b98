"""Who leads the metadata log, which makes it the controller, and who keeps it (DescribeQuorum; KIP-595, KIP-836)."""

from dataclasses import dataclass
from typing import Final

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import PartitionData as State
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, raise_for_error

METADATA_LOG: Final = "__cluster_metadata"
IN_SYNC_WITHIN_MS: Final = 2000  # as Kafka's controller.quorum.fetch.timeout.ms


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A broker that copies the log. `member`: whether it counts for what is committed. `end`: how far its copy goes, -1 when not known. `in_sync`: whether it
    had everything that is committed a moment ago."""

    broker: int
    is_voter: bool
    log_end_offset: int
    is_in_sync: bool


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """`end`: the first offset that is not committed. `keepers`: by broker."""

    leader: int
    epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]


async def describe_quorum(link: KafkaClient) -> QuorumDescription | None:
    """None where brokers do not tell of their metadata log."""
    topic = TopicData(topic_name=TopicName(METADATA_LOG), partitions=(PartitionData(partition_index=i32(0)),))
    try:
        answer = await link.ask_controller(DescribeQuorumRequest(topics=(topic,)))
    except KafkaError as error:
        if error.code is ErrorCode.unsupported_version:
            return None
        raise
    raise_for_error(answer.error_code, answer.error_message, "metadata log")
    state: State = answer.topics[0].partitions[0]
    raise_for_error(state.error_code, state.error_message, "metadata log")
    now_ms = max((it.last_caught_up_timestamp for it in state.current_voters), default=-1)  # the leader's own
    keepers = (
        QuorumReplica(
            int(it.replica_id),
            member,
            int(it.log_end_offset),
            is_in_sync=it.last_caught_up_timestamp >= now_ms - IN_SYNC_WITHIN_MS,
        )
        for member, them in ((True, state.current_voters), (False, state.observers))
        for it in them
    )
    return QuorumDescription(
        int(state.leader_id),
        int(state.leader_epoch),
        int(state.high_watermark),
        tuple(sorted(keepers, key=lambda it: it.broker)),
    )


async def list_voters(link: KafkaClient) -> frozenset[int]:
    """Brokers that count for what is committed; none where brokers do not tell of their metadata log."""
    found = await describe_quorum(link)
    return frozenset(it.broker for it in found.replicas if it.is_voter) if found else frozenset()
