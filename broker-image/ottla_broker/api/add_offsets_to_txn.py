"""AddOffsetsToTxn (25), versions 0–4.

- Adds to a producer's transaction the partition of `__consumer_offsets` that holds a group's
  offsets, so that TxnOffsetCommit can commit them in the transaction. Producers of transaction
  version 2 do not send this request.
- v2 adds PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH).
"""

from typing import Final

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse

from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TxnPartition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    flexible=3,
    starts_no_task=True,
    rights=(
        Right(Operation.write, ResourceType.transactional_id),
        Right(Operation.read, ResourceType.group),
    ),
)

PRODUCER_FENCED_SINCE: Final = 2
CLIENT_VERSION: Final = 0  # transaction version: producers of version 2 do not send this request


@API.handler()
async def add_offsets(ctx: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    producer = ProducerIdAndEpoch(int(request.producer_id), int(request.producer_epoch))
    code = ErrorCode.none
    try:
        ctx.check_authorized(Operation.write, Resource.transactional_id(request.transactional_id))
        ctx.check_authorized(Operation.read, Resource.group(request.group_id))
        partition = TxnPartition(OFFSETS_TOPIC, ctx.broker.group_coordinator.partition_of(request.group_id))
        await ctx.broker.transactions.coordinator.add_partitions(
            request.transactional_id, producer, [partition], client_version=CLIENT_VERSION
        )
    except KafkaError as reason:
        code = reason.code
        if code is ErrorCode.producer_fenced and ctx.version < PRODUCER_FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
