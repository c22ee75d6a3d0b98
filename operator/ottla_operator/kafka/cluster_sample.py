"""A sample of a cluster: brokers, topics, log ends, sizes and groups at one moment."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_broker.wire.pipeline_report import StoredReport
from ottla_operator.kafka import groups, log_dirs, offsets, reports, topics
from ottla_operator.kafka.client import KafkaClient, none_on_error
from ottla_operator.kafka.cluster import ClusterDescription, describe_cluster
from ottla_operator.kafka.groups import GroupListing
from ottla_operator.kafka.log_dirs import ReplicaSizes
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.topics import TopicDescription

MAX_OFFSET_REQUESTS: Final = 16
"""Requests for the offsets of groups that are in flight at one time."""

NO_PIPELINES: Final = (ErrorCode.invalid_request, ErrorCode.cluster_authorization_failed, ErrorCode.unsupported_version)
"""Errors of brokers that know no pipelines, or that refuse this user."""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """`at_s`: event loop time. `starts`, `ends`: log start and log end of the partitions whose
    leaders respond. `committed`: by group, the offsets that it has committed. `pipelines`: reports
    by name; empty if the brokers are not Ottla's, or the user may not describe pipelines."""

    at_s: float
    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    sizes: ReplicaSizes
    groups: Sequence[GroupListing]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    pipelines: Mapping[str, StoredReport] = field(default_factory=dict)


async def take_sample(client: KafkaClient) -> ClusterSample:
    """Raises KafkaError and Unreachable. Brokers that are down have no sizes, and partitions
    without a leader no offsets."""
    cluster = await describe_cluster(client, include_fenced=True)
    running = [it.id for it in cluster.brokers if not it.is_fenced]
    found = await topics.list_topics(client)
    at_s = asyncio.get_running_loop().time()
    starts, ends, sizes, listed, reported = await asyncio.gather(
        offsets.list_reachable_offsets(client, found, EARLIEST_TIMESTAMP),
        offsets.list_reachable_offsets(client, found, LATEST_TIMESTAMP),
        log_dirs.describe_replica_sizes(client, running),
        groups.list_groups(client, running),
        none_on_error(reports.list_pipelines(client), *NO_PIPELINES),
    )
    committed = await _list_committed(client, [it.id for it in listed])
    return ClusterSample(at_s, cluster, found, starts, ends, sizes, listed, committed, reported or {})


async def _list_committed(client: KafkaClient, names: Sequence[str]) -> dict[str, Mapping[TopicPartition, int]]:
    """Committed offsets by group, without groups whose offsets cannot be read now, such as those
    whose coordinator is moving. Raises KafkaError GROUP_AUTHORIZATION_FAILED.
    """
    permits = asyncio.Semaphore(MAX_OFFSET_REQUESTS)

    async def list_one(name: str) -> Mapping[TopicPartition, int] | None:
        async with permits:
            try:
                return await groups.list_group_offsets(client, name)
            except KafkaError as error:
                if error.code is ErrorCode.group_authorization_failed:
                    raise
                return None

    answers = await asyncio.gather(*map(list_one, names))
    return {name: answer for name, answer in zip(names, answers, strict=True) if answer is not None}
