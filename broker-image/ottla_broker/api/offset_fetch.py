"""OffsetFetch (9), versions 1–10.

- Returns the committed offsets of groups: of the requested partitions, or (null) of all. Where
  nothing is committed the offset is −1, whether or not the group or the partition exists.
- Only replicated commits are returned. With `require_stable` (v7, KIP-447) a partition whose offset
  an open transaction has committed is UNSTABLE_OFFSET_COMMIT.
- A commit for a deleted topic of the same name is not returned.
- v1 has errors per partition only; v2 adds null for all; v3 throttling; v5 leader epochs; v8
  several groups (KIP-709); v9 a member id and its epoch, which must be those of a member of the
  consumer group (KIP-848: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH); v10 topics by id.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as RequestV7
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as ResponseV7
from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition as Partition
from kio.schema.offset_fetch.v7.response import OffsetFetchResponseTopic as Topic
from kio.schema.offset_fetch.v9.request import OffsetFetchRequest as RequestByName
from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup as GroupByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as ResponseByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as GroupOffsetsByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponsePartitions as PartitionByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseTopics as TopicByName
from kio.schema.offset_fetch.v10.request import OffsetFetchRequest as RequestById
from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup as GroupById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponse as ResponseById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponseGroup as GroupOffsetsById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponsePartitions as PartitionById
from kio.schema.offset_fetch.v10.response import OffsetFetchResponseTopics as TopicById
from kio.schema.types import TopicName

from ottla_broker.coordination.records import OffsetCommit
from ottla_broker.metadata.image import TopicImage
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    flexible=6,
    rights=(
        Right(Operation.describe, ResourceType.group),
        Right(
            Operation.describe,
            ResourceType.topic,
            refused="TOPIC_AUTHORIZATION_FAILED; left out if all topics are requested",
        ),
    ),
)

P = TypeVar("P")

NO_COMMIT = OffsetCommit(offset=-1, leader_epoch=-1, metadata="", commit_ms=-1)
TOP_LEVEL_ERROR_SINCE = 2


class FoundCommit(NamedTuple):
    """What is committed for one partition of a topic. `commit`: NO_COMMIT if nothing is committed,
    and with an error."""

    partition: int
    commit: OffsetCommit
    error: ErrorCode = ErrorCode.none


@API.handler(1, 7)
async def fetch_one_group(ctx: RequestContext, request: RequestV7) -> ResponseV7:
    topics = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    try:
        found = find_commits(ctx, request.group_id, topics, request.require_stable)
    except KafkaError as reason:
        if ctx.version >= TOP_LEVEL_ERROR_SINCE:
            raise
        found = [(name, no_commits(partitions, reason.code)) for name, partitions in topics or ()]
    return ResponseV7(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            Topic(name=TopicName(name), partitions=build_partitions(Partition, partitions))
            for name, partitions in found
        ),
        error_code=ErrorCode.none,
    )


@API.handler(8, 9)
async def fetch_by_name(ctx: RequestContext, request: RequestByName) -> ResponseByName:
    return ResponseByName(
        throttle_time=NO_THROTTLE,
        groups=tuple(fetch_group_by_name(ctx, group, request.require_stable) for group in request.groups),
    )


def fetch_group_by_name(ctx: RequestContext, group: GroupByName, require_stable: bool) -> GroupOffsetsByName:
    topics = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
    try:
        check_member(ctx, group)
        found = find_commits(ctx, group.group_id, topics, require_stable)
    except KafkaError as reason:
        return GroupOffsetsByName(group_id=group.group_id, topics=(), error_code=reason.code)
    return GroupOffsetsByName(
        group_id=group.group_id,
        topics=tuple(
            TopicByName(name=TopicName(name), partitions=build_partitions(PartitionByName, partitions))
            for name, partitions in found
        ),
    )


@API.handler(10, 10)
async def fetch_by_id(ctx: RequestContext, request: RequestById) -> ResponseById:
    groups = tuple(fetch_group_by_id(ctx, group, request.require_stable) for group in request.groups)
    return ResponseById(throttle_time=NO_THROTTLE, groups=groups)


def check_member(ctx: RequestContext, group: GroupByName | GroupById) -> None:
    """Raises UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH for a member id and an epoch that the
    consumer group does not have, and the errors of `find_commits`.
    """
    ctx.check_authorized(Operation.describe, Resource.group(group.group_id))
    ctx.broker.group_coordinator.fetch_offsets(group.group_id, group.member_id, group.member_epoch)


def fetch_group_by_id(ctx: RequestContext, group: GroupById, require_stable: bool) -> GroupOffsetsById:
    """Commits for deleted topics are omitted where all are requested: those topics have no id."""
    image = ctx.broker.image
    found: list[tuple[UUID | None, list[FoundCommit]]] = []
    try:
        check_member(ctx, group)
        if group.topics is None:
            commits = find_commits(ctx, group.group_id, None, require_stable)
            found += [(image.topics[name].id, partitions) for name, partitions in commits if name in image.topics]
        for requested in group.topics or ():
            topic = None if requested.topic_id is None else image.topic_by_id(requested.topic_id)
            if topic is None:
                partitions = no_commits(requested.partition_indexes, ErrorCode.unknown_topic_id)
            else:
                partitions_of_topic = [(topic.name, requested.partition_indexes)]
                ((_, partitions),) = find_commits(ctx, group.group_id, partitions_of_topic, require_stable)
            found.append((requested.topic_id, partitions))
    except KafkaError as reason:
        return GroupOffsetsById(group_id=group.group_id, topics=(), error_code=reason.code)
    return GroupOffsetsById(
        group_id=group.group_id,
        topics=tuple(
            TopicById(topic_id=topic_id, partitions=build_partitions(PartitionById, partitions))
            for topic_id, partitions in found
        ),
    )


def build_partitions(kind: Callable[..., P], found: list[FoundCommit]) -> tuple[P, ...]:
    """Partitions of one topic, as `kind`, the class of the response's version."""
    return tuple(
        kind(
            partition_index=one.partition,
            committed_offset=one.commit.offset,
            committed_leader_epoch=one.commit.leader_epoch,
            metadata=one.commit.metadata,
            error_code=one.error,
        )
        for one in found
    )


def find_commits(
    ctx: RequestContext, group: str, requested: Sequence[tuple[str, Sequence[int]]] | None, require_stable: bool
) -> list[tuple[str, list[FoundCommit]]]:
    """Committed offsets of the group for the requested partitions, by topic name; None: for all
    topics that the client may describe. Raises GROUP_AUTHORIZATION_FAILED and the coordinator's
    errors.
    """
    ctx.check_authorized(Operation.describe, Resource.group(group))
    committed = ctx.broker.group_coordinator.fetch_offsets(group)

    def find(name: str, partitions: Iterable[int]) -> list[FoundCommit]:
        return find_topic_commits(ctx, group, name, partitions, committed.get(name, {}), require_stable)

    if requested is None:
        all_commits = [(name, find(name, sorted(of))) for name, of in committed.items()]
        return [
            (name, [one for one in found if one.commit is not NO_COMMIT or one.error is not ErrorCode.none])
            for name, found in all_commits
            if ctx.may(Operation.describe, Resource.topic(name))
        ]
    return [(name, find(name, partitions)) for name, partitions in requested]


def find_topic_commits(
    ctx: RequestContext,
    group: str,
    name: str,
    partitions: Iterable[int],
    commits: Mapping[int, OffsetCommit],
    require_stable: bool,
) -> list[FoundCommit]:
    if not ctx.is_authorized(Operation.describe, Resource.topic(name)):
        return no_commits(partitions, ErrorCode.topic_authorization_failed)
    topic = ctx.broker.image.topics.get(name)
    is_pending = ctx.broker.group_coordinator.has_pending_offset
    return [
        FoundCommit(p, NO_COMMIT, ErrorCode.unstable_offset_commit)
        if require_stable and is_pending(group, name, p)
        else FoundCommit(p, commit_of_topic(topic, commits.get(p, NO_COMMIT)))
        for p in partitions
    ]


def no_commits(partitions: Iterable[int], code: ErrorCode) -> list[FoundCommit]:
    return [FoundCommit(partition, NO_COMMIT, code) for partition in partitions]


def commit_of_topic(topic: TopicImage | None, commit: OffsetCommit) -> OffsetCommit:
    """The commit, or NO_COMMIT if it was for a deleted topic of the same name (rule 13)."""
    if topic is not None and commit.topic_id is not None and commit.topic_id != topic.id:
        return NO_COMMIT
    return commit
