"""BrokerRegistration (62), versions 0–4: between brokers only, handled by the active controller.

- A broker process registers its incarnation, listeners, rack, node and log directories. It is
  registered as fenced; the response contains its broker epoch.
- The same process may register again, and keeps its epoch while nothing has changed. Another
  process with the id of a live broker is DUPLICATE_BROKER_REGISTRATION, unless it has a log
  directory of that broker: then that broker's process has ended.
- v3 adds `previous_broker_epoch`, read from the marker of a clean shutdown. If it is not the epoch
  the broker had, the broker may have lost unsynced records and is removed from ISRs. The same holds
  for partitions of a directory that is missing.
- A broker of another cluster is INCONSISTENT_CLUSTER_ID. Features and ZooKeeper migration are
  ignored.
- v1 adds migrating ZooKeeper brokers; v2 log directories; v4 features whose lowest version is 0.
  The node is a tagged field of v4 that is Ottla's own.
"""

from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.static.primitive import i64

from ottla_broker.metadata.records import Endpoint, RegisterBrokerRecord
from ottla_broker.requests.api import CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import NO_UUID
from ottla_broker.wire.registration_message import OttlaBrokerRegistrationRequest

API = Api(
    ApiKey.BROKER_REGISTRATION, versions=(0, 4), flexible=0, is_served_while_starting=True, rights=(CLUSTER_ACTION,)
)

SECURITY_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


@API.handler()
async def broker_registration(
    ctx: RequestContext, request: OttlaBrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    controller = ctx.broker.active_controller()
    # The quorum's id, not `ctx.broker.cluster_id`: a broker that is starting may be elected
    # controller before it has copied the id from the quorum.
    cluster_id = ctx.broker.quorum.cluster_id
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id}; this is cluster {cluster_id}",
        )
    registration = RegisterBrokerRecord(
        request.broker_id,
        request.incarnation_id or NO_UUID,
        {one.name: Endpoint(one.host, one.port, security_protocol(one.security_protocol)) for one in request.listeners},
        rack=request.rack,
        directories=tuple(directory for directory in request.log_dirs if directory is not None),
        node=request.node,
    )
    epoch = await controller.cluster_control.register_broker(registration, request.previous_broker_epoch)
    return BrokerRegistrationResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, broker_epoch=i64(epoch))


def security_protocol(code: int) -> str:
    """Raises INVALID_REGISTRATION for a code that is none of Kafka's."""
    if code not in SECURITY_PROTOCOLS:
        raise KafkaError(ErrorCode.invalid_registration, f"security protocol {code} is none of {SECURITY_PROTOCOLS}")
    return SECURITY_PROTOCOLS[code]
