"""EndTxn (26), versions 0–5.

- Commits or aborts a producer's transaction. The decision is replicated when the response comes;
  the markers, after which consumers see the records, follow. The next transaction of the producer
  waits a moment for them, and is CONCURRENT_TRANSACTIONS if they are not written by then.
- v2 adds PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH). v5 is transaction version 2 (KIP-890):
  the end raises the producer's epoch, and the response has it.
"""

from typing import Final, cast

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i64

from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.END_TXN,
    versions=(0, 5),
    flexible=3,
    starts_no_task=True,
    rights=(Right(Operation.write, ResourceType.transactional_id),),
)

PRODUCER_FENCED_SINCE: Final = 2
PROTOCOL_2_SINCE: Final = 5


@API.handler()
async def end_transaction(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    try:
        ctx.check_authorized(Operation.write, Resource.transactional_id(request.transactional_id))
        producer = await ctx.broker.transactions.coordinator.end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(int(request.producer_id), int(request.producer_epoch)),
            commit=request.committed,
            client_version=2 if ctx.version >= PROTOCOL_2_SINCE else 0,
        )
    except KafkaError as reason:
        code = reason.code
        if code is ErrorCode.producer_fenced and ctx.version < PRODUCER_FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(cast(i64, producer.producer_id)),
        producer_epoch=cast(i16, producer.epoch),
    )
