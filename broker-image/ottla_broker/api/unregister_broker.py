"""UnregisterBroker (64), version 0.

- Removes a broker from the cluster: its leaderships move to other brokers. BROKER_ID_NOT_REGISTERED
  for an unknown id.
- Its replicas stay assigned to it until they are reassigned. A broker that still runs registers
  again, and is in no ISR then.
"""

from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

from ottla_broker.requests.api import ALTER_CLUSTER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0, is_forwarded=True, rights=(ALTER_CLUSTER,))


@API.handler()
async def unregister_broker(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    await ctx.broker.active_controller().cluster_control.unregister_broker(request.broker_id)
    return UnregisterBrokerResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None)
