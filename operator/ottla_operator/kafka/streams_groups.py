"""Streams groups (KIP-1071): members and the partitions that their tasks read."""

from typing import Final

from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import DescribedGroup, Member, TaskIds, Topology
from kio.schema.types import GroupId

from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kafka.groups import GroupDescription, MemberDescription, find_described_group
from ottla_operator.kafka.offsets import TopicPartition

STREAMS: Final = "streams"


async def describe_streams_group(client: KafkaClient, group: str) -> GroupDescription | None:
    """None for a group of another type, for one that does not exist, and if the broker does not
    support streams groups.
    """
    request = StreamsGroupDescribeRequest(group_ids=(GroupId(group),), include_authorized_operations=False)
    found: DescribedGroup | None = await find_described_group(client, group, request)
    if found is None:
        return None
    members = tuple(_describe_member(member, found.topology) for member in found.members)
    return GroupDescription(group, found.group_state, "", members, STREAMS, int(found.group_epoch))


def _describe_member(member: Member, topology: Topology | None) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host.lstrip("/"),
        _partitions_read(member.assignment.active_tasks, topology),
        STREAMS,
        int(member.member_epoch),
        _partitions_read(member.target_assignment.active_tasks, topology),
    )


def _partitions_read(tasks: tuple[TaskIds, ...], topology: Topology | None) -> frozenset[TopicPartition]:
    """The partitions that the tasks read of their subtopologies' topics."""
    subtopologies = {} if topology is None else {it.subtopology_id: it for it in topology.subtopologies or ()}
    return frozenset(
        (str(name), int(partition))
        for task in tasks
        if (subtopology := subtopologies.get(task.subtopology_id)) is not None
        for name in (*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics))
        for partition in task.partitions
    )
