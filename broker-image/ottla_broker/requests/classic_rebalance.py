"""JoinGroup and SyncGroup of members of classic groups, read and written by hand.

A rebalance takes one of each from every member. Those of the versions below are answered without
kio's messages and without a coroutine; everything else is left to the handlers in
`ottla_broker.api`, which answer the same. Tested against kio's codec.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla_broker.coordination.effects import JoinRequest, JoinResult, SyncRequest, SyncResult
from ottla_broker.log_format import is_json
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.reply import DeferredResponse, Reply
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import write_compact_bytes, write_compact_string, write_varint
from ottla_broker.wire.request_header import RequestHeader

JOIN_GROUP_VERSION: Final = 9
SYNC_GROUP_VERSION: Final = 5

_I32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">iibih")  # size, correlation id, no tagged fields, throttle time, error


class WaitingRequest:
    """A request of a group, whose response may be ready at once. `reply`: None until the handler
    knows that it is not.
    """

    __slots__ = ("_correlation_id", "_reply", "_response", "_write")

    def __init__(self, correlation_id: int, write: Callable[[int, Any], bytearray]) -> None:
        self._correlation_id = correlation_id
        self._write = write
        self._response: bytearray | None = None
        self._reply: DeferredResponse | None = None

    def complete(self, result: Any) -> None:
        response = self._write(self._correlation_id, result)
        if self._reply is None:
            self._response = response
        else:
            self._reply.complete([response])

    def reply(self) -> Reply:
        if self._response is not None:
            return [self._response]
        self._reply = DeferredResponse()
        return self._reply


def answer_join_group(ctx: RequestContext, header: RequestHeader, frame: bytearray) -> Reply:
    """None if the API's handler has to answer."""
    if header.version != JOIN_GROUP_VERSION or is_json():  # the handler's lines in the log have the request's fields
        return None
    try:
        group_id, request = read_join_group(ctx, Cursor(bytes(frame), header.body_offset))
    except (MalformedMessage, struct.error):
        return None
    if not ctx.may_read_group(group_id):
        return None
    waiting = WaitingRequest(header.correlation_id, write_join_group)
    try:
        if not ctx.broker.group_coordinator.try_join_group(group_id, request, waiting):
            return None
    except KafkaError as reason:
        waiting.complete(JoinResult(request.member_id, reason.code))
    return waiting.reply()


def answer_sync_group(ctx: RequestContext, header: RequestHeader, frame: bytearray) -> Reply:
    """None if the API's handler has to answer."""
    if header.version != SYNC_GROUP_VERSION:
        return None
    try:
        group_id, request = read_sync_group(Cursor(bytes(frame), header.body_offset))
    except (MalformedMessage, struct.error):
        return None
    if request.protocol_type is None or request.protocol_name is None:
        return None
    if not ctx.may_read_group(group_id):
        return None
    waiting = WaitingRequest(header.correlation_id, write_sync_group)
    try:
        if not ctx.broker.group_coordinator.try_sync_group(group_id, request, waiting):
            return None
    except KafkaError as reason:
        waiting.complete(SyncResult(reason.code))
    return waiting.reply()


def read_join_group(ctx: RequestContext, cursor: Cursor) -> tuple[str, JoinRequest]:
    """Reads a request of version 9, from the tagged fields of its header on."""
    skip_tagged_fields(cursor)
    group_id = _read_string(cursor)
    session_ms: int = cursor.read_fixed(_I32)
    rebalance_ms: int = cursor.read_fixed(_I32)
    member_id = _read_string(cursor)
    group_instance_id = cursor.read_string(flexible=True)
    protocol_type = _read_string(cursor)
    metadata_of_name: dict[str, bytes] = {}
    for _ in range(_read_count(cursor)):
        name = _read_string(cursor)
        metadata_of_name.setdefault(name, _read_bytes(cursor))
        skip_tagged_fields(cursor)
    reason = cursor.read_string(flexible=True)
    skip_tagged_fields(cursor)
    return group_id, JoinRequest(
        member_id,
        group_instance_id,
        ctx.client_id or "",
        f"/{ctx.connection.host}",  # as Java prints an address, and Kafka's tools show it
        session_ms if rebalance_ms < 0 else rebalance_ms,
        session_ms,
        protocol_type,
        tuple(metadata_of_name.items()),
        reason=reason or "",
    )


def write_join_group(correlation_id: int, result: JoinResult) -> bytearray:
    """A response of version 9."""
    out = bytearray(_HEAD.pack(0, correlation_id, 0, 0, result.error))
    out += _I32.pack(result.generation)
    write_compact_string(out, result.protocol_type)
    write_compact_string(out, result.protocol_name)
    write_compact_string(out, result.leader)
    out.append(1 if result.skip_assignment else 0)
    write_compact_string(out, result.member_id)
    write_varint(out, len(result.members) + 1)
    for member in result.members:
        write_compact_string(out, member.member_id)
        write_compact_string(out, member.group_instance_id)
        write_compact_bytes(out, member.metadata)
        out.append(0)
    out.append(0)
    _I32.pack_into(out, 0, len(out) - 4)
    return out


def read_sync_group(cursor: Cursor) -> tuple[str, SyncRequest]:
    """Reads a request of version 5, from the tagged fields of its header on."""
    skip_tagged_fields(cursor)
    group_id = _read_string(cursor)
    generation: int = cursor.read_fixed(_I32)
    member_id = _read_string(cursor)
    group_instance_id = cursor.read_string(flexible=True)
    protocol_type = cursor.read_string(flexible=True)
    protocol_name = cursor.read_string(flexible=True)
    assignments: dict[str, bytes] = {}
    for _ in range(_read_count(cursor)):
        assigned_id = _read_string(cursor)
        assignments[assigned_id] = _read_bytes(cursor)
        skip_tagged_fields(cursor)
    skip_tagged_fields(cursor)
    return group_id, SyncRequest(member_id, group_instance_id, generation, protocol_type, protocol_name, assignments)


def write_sync_group(correlation_id: int, result: SyncResult) -> bytearray:
    """A response of version 5."""
    out = bytearray(_HEAD.pack(0, correlation_id, 0, 0, result.error))
    write_compact_string(out, result.protocol_type)
    write_compact_string(out, result.protocol_name)
    write_compact_bytes(out, result.assignment)
    out.append(0)
    _I32.pack_into(out, 0, len(out) - 4)
    return out


def _read_string(cursor: Cursor) -> str:
    text = cursor.read_string(flexible=True)
    if text is None:
        raise MalformedMessage("null, where a string must be")
    return text


def _read_bytes(cursor: Cursor) -> bytes:
    return bytes(cursor.read_bytes(cursor.read_varint() - 1))


def _read_count(cursor: Cursor) -> int:
    count = cursor.read_array_length(flexible=True)
    if count < 0:
        raise MalformedMessage("null, where an array must be")
    return count
