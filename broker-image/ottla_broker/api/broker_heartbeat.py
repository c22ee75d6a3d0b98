"""BrokerHeartbeat (63), versions 0–2: between brokers only, handled by the active controller.

- Extends a broker's session. A fenced broker that wants to serve is unfenced when it has applied
  the metadata up to its registration, or, after a later fencing, up to the end that the log had at
  its first heartbeat since. A broker that wants to be fenced is fenced.
- `want_shut_down`: the controller moves leaderships away from the broker while it still serves.
  `should_shut_down` in the response: the leaderships have moved, every other live broker has
  applied that, and the broker is fenced.
- BROKER_ID_NOT_REGISTERED and STALE_BROKER_EPOCH: the broker has to register again, or another
  process has replaced it. NOT_CONTROLLER also while the controller hears from no majority of the
  voters.
- v1 adds failed log directories, whose partitions get other leaders. v2 adds cordoned directories,
  which are ignored.
"""

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse

from ottla_broker.metadata.cluster_control import BrokerHeartbeat
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode

API = Api(ApiKey.BROKER_HEARTBEAT, versions=(0, 2), flexible=0, is_served_while_starting=True, rights=(CLUSTER_ACTION,))


@API.handler()
async def broker_heartbeat(ctx: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    reply = await ctx.broker.active_controller().cluster_control.process_heartbeat(
        BrokerHeartbeat(
            request.broker_id,
            request.broker_epoch,
            request.current_metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_directories=tuple(directory for directory in request.offline_log_dirs if directory is not None),
        )
    )
    return BrokerHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
