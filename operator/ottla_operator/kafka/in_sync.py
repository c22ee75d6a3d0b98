"""Who is in sync, of every partition and of the metadata log: what a rolling restart is decided by."""

from collections.abc import Collection

from ottla_operator.kafka import configs, quorum, topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.roll import PartitionState, metadata_log_state


async def list_partition_states(link: KafkaClient, ready: Collection[int]) -> list[PartitionState]:
    """`ready`: brokers that serve. KafkaError while there is no controller: then nobody is to be restarted."""
    every = await topics.list_topics(link)
    least = await configs.describe_min_isr(link, [it.name for it in every])
    found = [
        PartitionState(topic.name, it.index, it.replicas, it.isr, least[topic.name])
        for topic in every
        for it in topic.partitions
    ]
    if (log := await quorum.describe_quorum(link)) is not None:
        members = [it for it in log.replicas if it.is_voter]
        in_sync = [it.broker for it in members if it.is_in_sync]
        found.insert(0, metadata_log_state(quorum.METADATA_LOG, [it.broker for it in members], in_sync, ready))
    return found
