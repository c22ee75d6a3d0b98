"""InitProducerId (22), versions 0–6.

- Without a transactional id: gives an idempotent producer an id that no other producer ever gets,
  with epoch 0. A producer that sends the id it had (v3) gets a new one, too: there is no state to
  keep, as in Kafka.
- With a transactional id: its producer id with a higher epoch, which fences former instances; a
  transaction that one of them left open is aborted first, and the client asks again
  (CONCURRENT_TRANSACTIONS).
- COORDINATOR_LOAD_IN_PROGRESS, on which producers retry, while the controller allocates no ids.
- An empty transactional id, a producer id without an epoch, and an epoch without an id are
  INVALID_REQUEST.
- v3 adds the producer's id and epoch (KIP-360), v4 PRODUCER_FENCED (before:
  INVALID_PRODUCER_EPOCH); v6 two-phase commit (KIP-939): transactions without a timeout, where
  `transaction.two.phase.commit.enable` allows it, else TRANSACTIONAL_ID_AUTHORIZATION_FAILED. As in
  Kafka, a prepared transaction cannot be kept (UNSUPPORTED_VERSION).
"""

import logging
from typing import cast

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i64

from ottla_broker.requests.api import CHECK_NEXT, Api, Right
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE, to_milliseconds
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError

API = Api(
    ApiKey.INIT_PRODUCER_ID,
    versions=(0, 6),
    flexible=2,
    rights=(
        Right(Operation.write, ResourceType.transactional_id, when="with a transactional id"),
        Right(Operation.two_phase_commit, ResourceType.transactional_id, when="for two-phase commit"),
        Right(Operation.write, ResourceType.topic, when="at least one", refused=CHECK_NEXT),
        Right(Operation.idempotent_write, ResourceType.cluster),
    ),
)

NO_PRODUCER_ID = -1
PRODUCER_FENCED_SINCE = 4
logger = logging.getLogger(__name__)


@API.handler()
async def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await init_transactional_producer(ctx, request, request.transactional_id)
    # A client that may write to some topic may do so idempotently (KIP-679).
    if not (ctx.may_any(Operation.write, ResourceType.topic) or ctx.is_authorized(Operation.idempotent_write, CLUSTER)):
        return build_response(ErrorCode.cluster_authorization_failed)
    if is_malformed(request):
        return build_response(ErrorCode.invalid_request)
    try:
        return build_response(ErrorCode.none, await ctx.broker.producer_ids.generate_id())
    except KafkaError as reason:
        logger.warning("cannot get producer ids from the controller: %s", reason)
        return build_response(ErrorCode.coordinator_load_in_progress)


async def init_transactional_producer(
    ctx: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(int(request.producer_id), int(request.producer_epoch))
    try:
        resource, coordinator = Resource.transactional_id(transactional_id), ctx.broker.transactions.coordinator
        ctx.check_authorized(Operation.write, resource)
        if request.enable2_pc:
            ctx.check_authorized(Operation.two_phase_commit, resource)
        if is_malformed(request):
            raise KafkaError(ErrorCode.invalid_request)
        if request.enable2_pc and not coordinator.config.two_phase_commit_enable:
            raise KafkaError(ErrorCode.transactional_id_authorization_failed)
        if request.keep_prepared_txn:
            raise KafkaError(ErrorCode.unsupported_version)
        producer = await coordinator.init_producer_id(
            transactional_id,
            to_milliseconds(request.transaction_timeout),
            expected,
            in_two_phases=request.enable2_pc,
        )
    except KafkaError as reason:
        code = reason.code
        if code is ErrorCode.producer_fenced and ctx.version < PRODUCER_FENCED_SINCE:
            code = ErrorCode.invalid_producer_epoch
        return build_response(code)
    return build_response(ErrorCode.none, producer.producer_id, producer.epoch)


def is_malformed(request: InitProducerIdRequest) -> bool:
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_ID
    return request.transactional_id == "" or has_id != has_epoch


def build_response(code: ErrorCode, producer_id: int = -1, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=ProducerId(cast(i64, producer_id)),
        producer_epoch=i16(-1 if producer_id < 0 else epoch),
    )
