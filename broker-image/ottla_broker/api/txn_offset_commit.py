"""TxnOffsetCommit (28), versions 0–5.

- Commits a group's offsets in a producer's transaction: they count once it commits. Until then
  OffsetFetch with `require_stable` is UNSTABLE_OFFSET_COMMIT for these partitions (KIP-447).
- The group coordinator verifies with the transaction coordinator that the transaction contains its
  partition of `__consumer_offsets`; from v5 on it adds that partition (KIP-890).
- v2 adds leader epochs, v3 the consumer's generation and member id (KIP-447).
"""

from collections.abc import Mapping
from typing import Final

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ottla_broker.coordination.records import OFFSETS_TOPIC, OffsetCommit
from ottla_broker.metadata.image import TopicImage
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TxnPartition
from ottla_broker.transactions.verification import TransactionOfProducer
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 5),
    flexible=3,
    rights=(
        Right(Operation.write, ResourceType.transactional_id),
        Right(Operation.read, ResourceType.group),
        Right(Operation.read, ResourceType.topic),
    ),
)

TRANSACTION_ABORTABLE_SINCE: Final = 4
ADDS_PARTITIONS_SINCE: Final = 5

VERIFICATION_ERRORS: Final = {  # of the transaction coordinator → of the group coordinator
    # Older clients do not expect the first four of a group coordinator; they retry after the error
    # that replaces them.
    ErrorCode.network_exception: ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator: ErrorCode.coordinator_load_in_progress,
    ErrorCode.concurrent_transactions: ErrorCode.coordinator_load_in_progress,
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.cluster_authorization_failed: ErrorCode.invalid_txn_state,
}

Codes = dict[tuple[str, int], ErrorCode]


@API.handler()
async def commit_offsets(ctx: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    codes: Codes = {}
    commits: dict[tuple[str, int], OffsetCommit] = {}
    failure = ErrorCode.none
    try:
        ctx.check_authorized(Operation.write, Resource.transactional_id(request.transactional_id))
        ctx.check_authorized(Operation.read, Resource.group(request.group_id))
        now_ms = ctx.broker.runtime.now_ms()
        for topic in request.topics:
            known = ctx.broker.image.topics.get(topic.name)
            for one in topic.partitions:
                at = topic.name, int(one.partition_index)
                codes[at] = find_error(ctx, topic.name, known, one)
                if codes[at] is ErrorCode.none and known is not None:
                    commits[at] = OffsetCommit(
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata or "",
                        now_ms,
                        topic_id=known.id,
                    )
        if commits:
            await commit_in_transaction(ctx, request, commits)
    except KafkaError as reason:
        failure = reason.code
    return build_response(request, codes, failure)


def find_error(
    ctx: RequestContext, name: str, topic: TopicImage | None, requested: TxnOffsetCommitRequestPartition
) -> ErrorCode:
    """The error for which the commit of a partition is not stored; `none` if it is valid."""
    if not ctx.is_authorized(Operation.read, Resource.topic(name)):
        return ErrorCode.topic_authorization_failed
    if topic is None or requested.partition_index not in topic.partitions:
        return ErrorCode.unknown_topic_or_partition
    if len(requested.committed_metadata or "") > ctx.broker.group_coordinator.config.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return ErrorCode.none


async def commit_in_transaction(
    ctx: RequestContext, request: TxnOffsetCommitRequest, commits: Mapping[tuple[str, int], OffsetCommit]
) -> None:
    """Commits the offsets once the transaction is verified. Raises the error of all of them."""
    producer = ProducerIdAndEpoch(int(request.producer_id), int(request.producer_epoch))
    transaction = TransactionOfProducer(request.transactional_id, producer, ctx.version >= ADDS_PARTITIONS_SINCE)

    async def verify(partition: int) -> None:
        at = TxnPartition(OFFSETS_TOPIC, partition)
        code = (await ctx.broker.transactions.verifier.verify(transaction, [at]))[at]
        if code is ErrorCode.transaction_abortable and ctx.version < TRANSACTION_ABORTABLE_SINCE:
            code = ErrorCode.invalid_txn_state
        if code is not ErrorCode.none:
            raise KafkaError(
                VERIFICATION_ERRORS.get(code, code), f"the coordinator has not verified {OFFSETS_TOPIC}-{partition}"
            )

    await ctx.broker.group_coordinator.commit_transactional_offsets(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        producer,
        commits,
        verify,
    )


def build_response(request: TxnOffsetCommitRequest, codes: Codes, failure: ErrorCode) -> TxnOffsetCommitResponse:
    """`failure`: the error of all partitions that have none of their own."""

    def code_of(topic: str, partition: int) -> ErrorCode:
        code = codes.get((topic, partition), failure)
        return failure if code is ErrorCode.none else code

    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code_of(topic.name, int(one.partition_index))
                    )
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
