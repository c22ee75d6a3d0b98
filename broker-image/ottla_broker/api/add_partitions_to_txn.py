"""AddPartitionsToTxn (24), versions 0–5.

- Adds partitions to a producer's transaction, which begins with the first of them. All or none: if
  one partition is unknown or not authorized, the others are OPERATION_NOT_ATTEMPTED.
- v2 adds PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH). From v4 on it is for brokers (KIP-890):
  a request has several transactions, and `verify_only` asks whether partitions are in a
  transaction. A partition that is not in it is TRANSACTION_ABORTABLE.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final, TypeVar, cast

from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as RequestOfClient
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnPartitionResult as PartitionOfClient
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse as ResponseToClient
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnTopicResult as TopicOfClient
from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TxnPartition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    flexible=3,
    starts_no_task=True,
    rights=(
        Right(Operation.write, ResourceType.transactional_id, when="from clients"),
        Right(Operation.write, ResourceType.topic, when="from clients"),
        Right(Operation.cluster_action, ResourceType.cluster, when="from brokers (since v4)"),
    ),
)

PRODUCER_FENCED_SINCE: Final = 2
CLIENT_VERSION: Final = 0
"""The transaction version of clients that send this request: those of transaction version 2 do
not."""
BROKER_VERSION: Final = 2

Codes = dict[TxnPartition, ErrorCode]
T = TypeVar("T")


@API.handler(0, 3)
async def add_partitions(ctx: RequestContext, request: RequestOfClient) -> ResponseToClient:
    partitions = [
        TxnPartition(topic.name, int(index)) for topic in request.v3_and_below_topics for index in topic.partitions
    ]
    transactional_id = request.v3_and_below_transactional_id
    producer = ProducerIdAndEpoch(int(request.v3_and_below_producer_id), int(request.v3_and_below_producer_epoch))
    try:
        ctx.check_authorized(Operation.write, Resource.transactional_id(transactional_id))
        codes = find_invalid(ctx, partitions)
        if not codes:
            await ctx.broker.transactions.coordinator.add_partitions(
                transactional_id, producer, partitions, client_version=CLIENT_VERSION
            )
            codes = dict.fromkeys(partitions, ErrorCode.none)
    except KafkaError as reason:
        code = reason.code
        if code is ErrorCode.producer_fenced and ctx.version < PRODUCER_FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        codes = dict.fromkeys(partitions, code)
    return ResponseToClient(
        throttle_time=NO_THROTTLE,
        results_by_topic_v3_and_below=build_topics(TopicOfClient, PartitionOfClient, partitions, codes),
    )


def find_invalid(ctx: RequestContext, partitions: Iterable[TxnPartition]) -> Codes:
    """Error codes of the partitions that do not exist or that the client may not write to."""
    codes: Codes = {}
    for at in partitions:
        if not ctx.is_authorized(Operation.write, Resource.topic(at.topic)):
            codes[at] = ErrorCode.topic_authorization_failed
        elif not exists(ctx, at):
            codes[at] = ErrorCode.unknown_topic_or_partition
    return codes


def exists(ctx: RequestContext, at: TxnPartition) -> bool:
    topic = ctx.broker.image.topics.get(at.topic)
    return topic is not None and at.partition in topic.partitions


@API.handler(4, 5)
async def add_partitions_for_leaders(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    ctx.check_authorized(Operation.cluster_action, CLUSTER)
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results_by_transaction=tuple(
            await asyncio.gather(*(add_or_verify_partitions(ctx, one) for one in request.transactions))
        ),
    )


async def add_or_verify_partitions(
    ctx: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    partitions = [TxnPartition(topic.name, int(index)) for topic in transaction.topics for index in topic.partitions]
    producer = ProducerIdAndEpoch(int(transaction.producer_id), int(transaction.producer_epoch))
    coordinator = ctx.broker.transactions.coordinator
    codes = {at: ErrorCode.unknown_topic_or_partition for at in partitions if not exists(ctx, at)}
    try:
        if codes:
            pass
        elif transaction.verify_only:
            missing = coordinator.find_missing_partitions(transaction.transactional_id, producer, partitions)
            codes = {at: ErrorCode.transaction_abortable if at in missing else ErrorCode.none for at in partitions}
        else:
            await coordinator.add_partitions(
                transaction.transactional_id, producer, partitions, client_version=BROKER_VERSION
            )
            codes = dict.fromkeys(partitions, ErrorCode.none)
    except KafkaError as reason:
        codes = dict.fromkeys(partitions, reason.code)
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=build_topics(AddPartitionsToTxnTopicResult, AddPartitionsToTxnPartitionResult, partitions, codes),
    )


def build_topics(
    topic: Callable[..., T], partition: Callable[..., object], partitions: Iterable[TxnPartition], codes: Codes
) -> tuple[T, ...]:
    """`topic`, `partition`: classes of the results in the response."""
    return tuple(
        topic(
            name=TopicName(name),
            results_by_partition=tuple(
                partition(
                    partition_index=cast(i32, at.partition),
                    partition_error_code=codes.get(at, ErrorCode.operation_not_attempted),
                )
                for at in of_topic
            ),
        )
        for name, of_topic in groupby(partitions, key=lambda at: at.topic)
    )
