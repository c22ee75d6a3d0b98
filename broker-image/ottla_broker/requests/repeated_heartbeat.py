"""A heartbeat of a member of a consumer group (KIP-848) that repeats the one before it.

Nearly all heartbeats are such: the member names itself and its epoch, and says nothing else. While
the group does not change, the response is that of the last one but for its correlation id. The
request is not parsed, the response not encoded, and no task is started. Everything that decides on
the response is checked each time: rights, the coordinator, the epochs, the group's configs.
"""

from typing import Final

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla_broker.requests.consumer_protocol import is_consumer_protocol_enabled
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.durations import to_milliseconds
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import write_response
from ottla_broker.wire.errors import KafkaError

REQUEST_ID_AT: Final = 4  # of the correlation id, in a request without its size
RESPONSE_ID_AT: Final = 4  # in a response, after its size


class LastHeartbeat:
    """The last heartbeat of a connection that was parsed. Without a response it is not repeated."""

    __slots__ = ("_front", "_rest", "epoch", "group_id", "heartbeat_interval_ms", "member_id", "response")

    def __init__(self, frame: bytearray) -> None:
        self._front = bytes(frame[:REQUEST_ID_AT])
        self._rest = bytes(frame[REQUEST_ID_AT + 4 :])
        self.response: bytes | None = None
        self.group_id = self.member_id = ""
        self.epoch = self.heartbeat_interval_ms = -1

    def is_repeated_by(self, frame: bytearray) -> bool:
        return (
            self.response is not None
            and len(frame) == REQUEST_ID_AT + 4 + len(self._rest)
            and frame.startswith(self._front)
            and frame.endswith(self._rest)
        )


def repeat_heartbeat(ctx: RequestContext, frame: bytearray) -> bytearray | None:
    """The response to a frame that repeats the connection's last heartbeat, while nothing has
    changed for its member. None: it has to be parsed."""
    last = ctx.connection.last_heartbeat
    if not isinstance(last, LastHeartbeat) or not last.is_repeated_by(frame) or not _is_unchanged(ctx, last):
        ctx.connection.last_heartbeat = LastHeartbeat(frame)
        return None
    assert last.response is not None
    response = bytearray(last.response)
    response[RESPONSE_ID_AT : RESPONSE_ID_AT + 4] = frame[REQUEST_ID_AT : REQUEST_ID_AT + 4]
    return response


def _is_unchanged(ctx: RequestContext, last: LastHeartbeat) -> bool:
    if not is_consumer_protocol_enabled(ctx) or not ctx.may(Operation.read, Resource.group(last.group_id)):
        return False
    coordinator = ctx.broker.group_coordinator
    try:
        interval_ms = coordinator.repeat_consumer_group_heartbeat(last.group_id, last.member_id, last.epoch)
    except KafkaError:
        return False
    return interval_ms == last.heartbeat_interval_ms


def remember_response(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
) -> None:
    """Called with the response to the heartbeat that `repeat_heartbeat` could not answer. It can be
    repeated if neither of the two says more than the member's epoch."""
    last = ctx.connection.last_heartbeat
    says_nothing = (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.topic_partitions is None
        and to_milliseconds(request.rebalance_timeout) == -1
    )
    is_same = request.member_epoch == response.member_epoch and response.assignment is None
    if isinstance(last, LastHeartbeat) and says_nothing and is_same and request.member_epoch > 0:
        last.group_id, last.member_id, last.epoch = request.group_id, request.member_id, request.member_epoch
        last.heartbeat_interval_ms = to_milliseconds(response.heartbeat_interval)
        last.response = bytes(write_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, ctx.version, 0, response))
