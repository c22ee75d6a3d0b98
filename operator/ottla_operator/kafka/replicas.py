"""Replicas that may lead although they are not in sync (KIP-966), which only DescribeTopicPartitions tells."""

from dataclasses import dataclass

from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.types import TopicName

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, raise_for_error


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """`eligible`: have everything that was acknowledged. `last_known`: the last that had, where nobody has now."""

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


async def describe_eligible_leaders(link: KafkaClient, topic: str) -> dict[int, EligibleLeaders]:
    """By partition. Empty where brokers do not tell."""
    found: dict[int, EligibleLeaders] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name=TopicName(topic)),), cursor=cursor)
        try:
            answer = await link.ask(request)
        except KafkaError as error:
            if error.code is ErrorCode.unsupported_version:
                return {}
            raise
        for told in answer.topics:
            raise_for_error(told.error_code, None, f"topic {topic!r}")
            for it in told.partitions:
                found[it.partition_index] = EligibleLeaders(
                    tuple(it.eligible_leader_replicas or ()), tuple(it.last_known_elr or ())
                )
        if (next_ := answer.next_cursor) is None:
            return found
        cursor = Cursor(topic_name=next_.topic_name, partition_index=next_.partition_index)
