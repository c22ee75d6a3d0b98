"""AllocateProducerIds (67), version 0: between brokers only, handled by the active controller.

- Allocates a block of producer ids to a broker; no id is ever allocated twice.
- Only to a registered broker with its current epoch: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
"""

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(
    ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible=0, is_served_while_starting=True, rights=(CLUSTER_ACTION,)
)


@API.handler()
async def allocate_producer_ids(
    ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    controller = ctx.broker.active_controller()
    controller.cluster_control.check_broker_epoch(request.broker_id, request.broker_epoch)
    block = await controller.allocate_producer_ids()
    return AllocateProducerIdsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id_start=ProducerId(i64(block.start)),
        producer_id_len=i32(len(block)),
    )
