"""A heartbeat of a member of a consumer group (KIP-848) that repeats the one before it.

Nearly all heartbeats do so: the member names itself and its epoch, and says nothing else. The
request then differs from the last one in its correlation id and, after a rebalance, in its epoch.
It is not parsed, its response is mostly the last one with another correlation id and epoch, and no
task is started. Everything that decides on the response is checked each time: rights, the
coordinator, the epochs, the group's configs.

While the group does not change, the heartbeat is answered at once. Otherwise it runs with the other
heartbeats of this turn of the event loop, as one that has been parsed does.

It takes 6.1 µs of processor time instead of 44.3, without the network. A rebalance of 1,000 members
takes about 3,600 heartbeats (bench line `consumer-1000-cpu`).
"""

from typing import Final

from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from ottla_broker.coordination.heartbeat_turn import HeartbeatOutcome
from ottla_broker.requests.api import build_error_response
from ottla_broker.requests.consumer_heartbeat_response import build_response
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.group_requests import is_consumer_protocol_enabled
from ottla_broker.requests.repeated_request import CORRELATION_ID, EPOCH_SIZE, RequestPattern, UnparsedRequest
from ottla_broker.requests.reply import DeferredResponse, Reply
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import write_response
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.request_header import RequestHeader

KEY: Final = int(ApiKey.CONSUMER_GROUP_HEARTBEAT)
STRINGS_BEFORE_EPOCH: Final = 2  # the group id and the member id
RESPONSE_EPOCH: Final = slice(-10, -6)
"""In a response without an assignment: interval, null and tagged fields follow."""


class RepeatableHeartbeat:
    """The last heartbeat that was parsed. It said nothing but its epoch.

    `ctx`: its context. `response`: the last response without an assignment; empty before the first.
    `interval_ms`: the heartbeat interval in that response.
    """

    def __init__(
        self, ctx: RequestContext, pattern: RequestPattern, group_id: str, heartbeat: ConsumerHeartbeat
    ) -> None:
        self.key = KEY
        self.ctx = ctx
        self.pattern = pattern
        self.group_id = group_id
        self.heartbeat = heartbeat
        self.response = b""
        self.interval_ms = -1

    def is_repeated_by(self, frame: bytearray) -> bool:
        return self.pattern.matches(frame)

    def repeat(self, frame: bytearray) -> Reply:
        epoch = self.pattern.epoch_of(frame)
        if epoch <= 0 or not is_consumer_protocol_enabled(self.ctx) or not self.ctx.may_read_group(self.group_id):
            return None
        try:
            return _run(self, int.from_bytes(frame[CORRELATION_ID], signed=True), epoch)
        except KafkaError:  # the coordinator does not serve the group; the parsed heartbeat gets the error
            return None


def repeat_heartbeat(ctx: RequestContext, header: RequestHeader, frame: bytearray) -> Reply:
    """The response to a request that repeats the connection's last heartbeat. None: it has to be
    parsed.
    """
    last = ctx.connection.last_heartbeat
    if last is not None and last.key == KEY and last.is_repeated_by(frame):
        reply = last.repeat(frame)
        if reply is not None:
            return reply
    ctx.connection.last_heartbeat = UnparsedRequest(frame, header)
    return None


def _run(last: RepeatableHeartbeat, correlation_id: int, epoch: int) -> Reply:
    """Answers the heartbeat. Raises KafkaError if the coordinator does not serve the group."""
    groups = last.ctx.broker.group_coordinator.consumer_groups_of(last.group_id)
    member_id = last.heartbeat.member_id
    interval_ms = groups.repeat_heartbeat(last.group_id, member_id, epoch)
    if interval_ms is not None:
        return [_write(last, correlation_id, HeartbeatResult(member_id, epoch, interval_ms))]
    reply = DeferredResponse()

    def complete(outcome: HeartbeatOutcome) -> None:
        reply.complete([_write(last, correlation_id, outcome)])

    groups.queue_heartbeat(last.group_id, last.heartbeat.with_epoch(epoch), complete)
    return reply


def _write(last: RepeatableHeartbeat, correlation_id: int, outcome: HeartbeatOutcome) -> bytearray:
    if isinstance(outcome, KafkaError):
        error = build_error_response(ConsumerGroupHeartbeatResponse, outcome)
        return write_response(KEY, last.ctx.version, correlation_id, error)
    if outcome.assignment is None and outcome.heartbeat_interval_ms == last.interval_ms:
        response = bytearray(last.response)
        response[CORRELATION_ID] = correlation_id.to_bytes(4, signed=True)
        response[RESPONSE_EPOCH] = outcome.member_epoch.to_bytes(EPOCH_SIZE, signed=True)
        return response
    response = write_response(KEY, last.ctx.version, correlation_id, build_response(outcome))
    if outcome.assignment is None:
        last.response, last.interval_ms = bytes(response), outcome.heartbeat_interval_ms
    return response


def remember_heartbeat(ctx: RequestContext, group_id: str, heartbeat: ConsumerHeartbeat) -> None:
    """Called with the heartbeat that was parsed because `repeat_heartbeat` could not answer it."""
    unparsed = ctx.connection.last_heartbeat
    if isinstance(unparsed, UnparsedRequest) and heartbeat.is_epoch_only:
        ctx.connection.last_heartbeat = RepeatableHeartbeat(
            ctx, unparsed.pattern(STRINGS_BEFORE_EPOCH), group_id, heartbeat
        )
