"""DescribeTransactions (65), version 0.

- Returns the state of transactional ids that this broker coordinates (KIP-664): producer, state,
  timeout, start and the open transaction's partitions, of topics that the client may describe.
- The start of an id without a transaction is −1.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import cast

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TopicData, TransactionState
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i64

from ottla_broker.requests.api import Api, Right, build_error_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_duration, to_timestamp
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import TransactionMetadata
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    flexible=0,
    rights=(
        Right(Operation.describe, ResourceType.transactional_id),
        Right(Operation.describe, ResourceType.topic, refused="left out"),
    ),
)


@API.handler()
async def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time=NO_THROTTLE,
        transaction_states=tuple(describe_transaction(ctx, one) for one in request.transactional_ids),
    )


def describe_transaction(ctx: RequestContext, transactional_id: TransactionalId) -> TransactionState:
    try:
        ctx.check_authorized(Operation.describe, Resource.transactional_id(transactional_id))
        transaction = ctx.broker.transactions.coordinator.describe(transactional_id)
    except KafkaError as reason:
        return build_error_response(TransactionState, reason, transactional_id=transactional_id)
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout=to_duration(transaction.timeout_ms),
        transaction_start_time=to_timestamp(transaction.start_ms),
        producer_id=ProducerId(cast(i64, transaction.producer_id)),
        producer_epoch=cast(i16, transaction.producer_epoch),
        topics=tuple(describe_topics(ctx, transaction)),
    )


def describe_topics(ctx: RequestContext, transaction: TransactionMetadata) -> Iterator[TopicData]:
    for name, partitions in groupby(sorted(transaction.partitions), key=lambda at: at.topic):
        indexes = tuple(cast(i32, at.partition) for at in partitions)
        if ctx.may(Operation.describe, Resource.topic(name)):
            yield TopicData(topic=TopicName(name), partitions=indexes)
