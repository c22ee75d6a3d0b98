"""Who is in sync, of every partition and of the metadata log: what a rolling restart is decided by."""

from collections.abc import Collection

from ottla_operator.brokers import cluster_settings, quorum, topics
from ottla_operator.brokers.link import Link
from ottla_operator.plan.roll import PartitionState, metadata_log


async def partition_states(link: Link, ready: Collection[int]) -> list[PartitionState]:
    """`ready`: brokers that serve. KafkaError while there is no controller: then nobody is to be restarted."""
    every = await topics.all_topics(link)
    least = await cluster_settings.min_isr(link, [it.name for it in every])
    found = [
        PartitionState(topic.name, it.index, it.replicas, it.isr, least[topic.name])
        for topic in every
        for it in topic.partitions
    ]
    if (log := await quorum.describe(link)) is not None:
        members = [it for it in log.keepers if it.member]
        in_sync = [it.broker for it in members if it.in_sync]
        found.insert(0, metadata_log(quorum.METADATA_LOG, [it.broker for it in members], in_sync, ready))
    return found
