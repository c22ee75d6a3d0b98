"""OffsetFetch (9), versions 1–10.

- Returns the committed offsets of groups: of the requested partitions, or (null) of all. Nothing committed is offset
  −1, whether or not the group or the partition exists.
- Only replicated commits are returned. That satisfies `require_stable` (v7, KIP-447), as there are no transactions.
- A commit for a deleted topic of the same name is not returned.
- v1 has errors per partition only; v2 adds null for all; v3 throttling; v5 leader epochs; v8 several groups
  (KIP-709); v9 member id and epoch (for KIP-848 groups, ignored); v10 topics by id.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as OneGroup
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as OneGroupOffsets
from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition as Partition
from kio.schema.offset_fetch.v7.response import OffsetFetchResponseTopic as Topic
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest as ByName
from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup as GroupByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as OffsetsByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as GroupOffsetsByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponsePartitions as PartitionByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseTopics as TopicByName
from kio.schema.offset_fetch.v10.request import OffsetFetchRequest as ById
from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup as GroupById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponse as OffsetsById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponseGroup as GroupOffsetsById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponsePartitions as PartitionById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponseTopics as TopicById
from kio.schema.types import TopicName

from ottla_broker.coordination.records import OffsetCommit
from ottla_broker.metadata.image import TopicImage
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(ApiKey.OFFSET_FETCH, versions=(1, 10), flexible=6)

P = TypeVar("P")

NOTHING = OffsetCommit(offset=-1, leader_epoch=-1, metadata="", commit_ms=-1)
ERRORS_OF_THE_WHOLE_SINCE = 2

Found = list[tuple[int, OffsetCommit, ErrorCode]]  # of one topic: partition, what is committed, error


@API.handler(1, 7)
async def one_group(ctx: RequestContext, request: OneGroup) -> OneGroupOffsets:
    topics = [] if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    try:
        check_group(ctx, request.group_id)
        found = find_all(ctx, request.group_id) if request.topics is None else find(ctx, request.group_id, topics)
    except KafkaError as reason:
        if ctx.version >= ERRORS_OF_THE_WHOLE_SINCE:
            raise
        found = [(name, nothing(partitions, reason.code)) for name, partitions in topics]
    return OneGroupOffsets(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            Topic(
                name=TopicName(name),
                partitions=told(Partition, partitions),
            )
            for name, partitions in found
        ),
        error_code=ErrorCode.none,
    )


@API.handler(8, 9)
async def by_name(ctx: RequestContext, request: ByName) -> OffsetsByName:
    return OffsetsByName(throttle_time=NO_THROTTLE, groups=tuple(group_by_name(ctx, group) for group in request.groups))


def group_by_name(ctx: RequestContext, group: GroupByName) -> GroupOffsetsByName:
    try:
        check_group(ctx, group.group_id)
        if group.topics is None:
            found = find_all(ctx, group.group_id)
        else:
            found = find(ctx, group.group_id, [(topic.name, topic.partition_indexes) for topic in group.topics])
    except KafkaError as reason:
        return GroupOffsetsByName(group_id=group.group_id, topics=(), error_code=reason.code)
    return GroupOffsetsByName(
        group_id=group.group_id,
        topics=tuple(
            TopicByName(
                name=TopicName(name),
                partitions=told(PartitionByName, partitions),
            )
            for name, partitions in found
        ),
    )


@API.handler(10, 10)
async def by_id(ctx: RequestContext, request: ById) -> OffsetsById:
    return OffsetsById(throttle_time=NO_THROTTLE, groups=tuple(group_by_id(ctx, group) for group in request.groups))


def group_by_id(ctx: RequestContext, group: GroupById) -> GroupOffsetsById:
    """Of «all», what belongs to no topic any more is left out: it has no id to be told by."""
    image = ctx.broker.image
    try:
        check_group(ctx, group.group_id)
        found: list[tuple[UUID | None, Found]] = []
        if group.topics is None:
            for name, partitions in find_all(ctx, group.group_id):
                if name in image.topics:
                    found.append((image.topics[name].id, partitions))
        else:
            for wanted in group.topics:
                topic = None if wanted.topic_id is None else image.topic_by_id(wanted.topic_id)
                if topic is None or wanted.topic_id is None:
                    found.append((wanted.topic_id, nothing(wanted.partition_indexes, ErrorCode.unknown_topic_id)))
                else:
                    ((_, partitions),) = find(ctx, group.group_id, [(topic.name, wanted.partition_indexes)])
                    found.append((topic.id, partitions))
    except KafkaError as reason:
        return GroupOffsetsById(group_id=group.group_id, topics=(), error_code=reason.code)
    return GroupOffsetsById(
        group_id=group.group_id,
        topics=tuple(
            TopicById(
                topic_id=topic_id,
                partitions=told(PartitionById, partitions),
            )
            for topic_id, partitions in found
        ),
    )


def told(kind: Callable[..., P], partitions: Found) -> tuple[P, ...]:
    """Partitions of one topic, in the class that the answer's version has for them."""
    return tuple(
        kind(
            partition_index=partition,
            committed_offset=commit.offset,
            committed_leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
            error_code=code,
        )
        for partition, commit, code in partitions
    )


def check_group(ctx: RequestContext, group: str) -> None:
    if not ctx.is_authorized(Operation.describe, Resource.group(group)):
        raise KafkaError(ErrorCode.group_authorization_failed)


def find(ctx: RequestContext, group: str, wanted: Iterable[tuple[str, Sequence[int]]]) -> list[tuple[str, Found]]:
    committed = ctx.broker.group_coordinator.fetch_offsets(group)
    found = []
    for name, partitions in wanted:
        if not ctx.is_authorized(Operation.describe, Resource.topic(name)):
            found.append((name, nothing(partitions, ErrorCode.topic_authorization_failed)))
            continue
        topic, commits = ctx.broker.image.topics.get(name), committed.get(name, {})
        found.append(
            (name, [(p, of_this(topic, commits.get(p, NOTHING)), ErrorCode.none) for p in partitions]),
        )
    return found


def find_all(ctx: RequestContext, group: str) -> list[tuple[str, Found]]:
    """Everything the group committed, of topics that the caller may know of."""
    committed = ctx.broker.group_coordinator.fetch_offsets(group)
    visible = [
        (name, sorted(commits))
        for name, commits in committed.items()
        if ctx.is_authorized(Operation.describe, Resource.topic(name))
    ]
    return [
        (name, [one for one in partitions if one[1] is not NOTHING]) for name, partitions in find(ctx, group, visible)
    ]


def nothing(partitions: Iterable[int], code: ErrorCode) -> Found:
    return [(partition, NOTHING, code) for partition in partitions]


def of_this(topic: TopicImage | None, commit: OffsetCommit) -> OffsetCommit:
    """The commit, unless it was made for another topic of the same name (design rule 13)."""
    if topic is not None and commit.topic_id is not None and commit.topic_id != topic.id:
        return NOTHING
    return commit
