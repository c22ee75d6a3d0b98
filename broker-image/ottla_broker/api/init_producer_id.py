"""InitProducerId (22), versions 0–6.

- Gives an idempotent producer an id that no other producer ever gets, with epoch 0. A producer that
  sends the id it had (v3) gets a new one, too: without a transactional id there is no state to
  keep, as in Kafka.
- COORDINATOR_LOAD_IN_PROGRESS, on which producers retry, while the controller allocates no ids.
- Transactions are not implemented. A transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the
  one error that both the Java client and librdkafka treat as fatal here; librdkafka retries any
  other until a timeout. FindCoordinator, which such a producer sends first, has the message that
  says why.
- An empty transactional id, and an id without its epoch or the reverse, are INVALID_REQUEST.
- v3 adds the producer's id and epoch (KIP-360); v6 two-phase commit (KIP-939, ignored).
"""

import logging
from typing import cast

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i64

from ottla_broker.requests.api import ASK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.INIT_PRODUCER_ID,
    versions=(0, 6),
    flexible=2,
    rights=(
        Right(Operation.write, ResourceType.topic, when="on one of any name", refused=ASK_NEXT),
        Right(Operation.idempotent_write, ResourceType.cluster),
    ),
)

NO_PRODUCER_ID = -1
logger = logging.getLogger(__name__)


@API.handler()
async def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "" or (request.producer_id == NO_PRODUCER_ID) != (
        request.producer_epoch == NO_PRODUCER_ID
    ):
        return producer_id_response(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return producer_id_response(ErrorCode.transactional_id_authorization_failed)
    # Who may write to any topic may do so idempotently (KIP-679).
    if not (ctx.may_any(Operation.write, ResourceType.topic) or ctx.is_authorized(Operation.idempotent_write, CLUSTER)):
        return producer_id_response(ErrorCode.cluster_authorization_failed)
    try:
        return producer_id_response(ErrorCode.none, await ctx.broker.producer_ids.generate_id())
    except KafkaError as reason:
        logger.warning("cannot get producer ids from the controller: %s", reason)
        return producer_id_response(ErrorCode.coordinator_load_in_progress)


def producer_id_response(code: ErrorCode, producer_id: int = -1) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=ProducerId(cast(i64, producer_id)),
        producer_epoch=i16(-1 if producer_id < 0 else 0),
    )
