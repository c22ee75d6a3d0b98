"""JoinGroup and SyncGroup of members of classic groups, read and written by hand.

A rebalance takes one of each from every member. Those of versions that know static members are
answered without kio's messages and without a coroutine: Java's clients and franz-go send the last
version, librdkafka and aiokafka the first of these. Everything else is left to the handlers in
`ottla_broker.api`, which answer the same. Tested against kio's codec.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla_broker.coordination.effects import JoinRequest, JoinResult, SyncRequest, SyncResult
from ottla_broker.log_format import is_json
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.group_requests import client_host
from ottla_broker.requests.reply import DeferredResponse, Reply
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, skip_tagged_fields
from ottla_broker.wire.message_writer import (
    write_bytes,
    write_compact_bytes,
    write_compact_string,
    write_length,
    write_string,
)
from ottla_broker.wire.request_header import RequestHeader

# The first versions with a field or a format.
JOIN_GROUP_INSTANCE_ID: Final = 5
JOIN_GROUP_FLEXIBLE: Final = 6
JOIN_GROUP_PROTOCOL_TYPE: Final = 7
JOIN_GROUP_REASON: Final = 8
JOIN_GROUP_SKIP_ASSIGNMENT: Final = 9
SYNC_GROUP_INSTANCE_ID: Final = 3
SYNC_GROUP_FLEXIBLE: Final = 4
SYNC_GROUP_PROTOCOL: Final = 5

_I32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">iiih")  # size, correlation id, throttle time, error
_FLEXIBLE_HEAD: Final = struct.Struct(">iibih")  # with no tagged fields after the correlation id


class RebalanceResponse:
    """The response to a JoinGroup or SyncGroup, which may be ready at once. `_response`: set by
    `complete` if the group calls it before `reply`. `_deferred`: set by `reply` otherwise.
    """

    __slots__ = ("_deferred", "_header", "_response", "_write")

    def __init__(self, header: RequestHeader, write: Callable[[int, int, Any], bytes]) -> None:
        self._header = header
        self._write = write
        self._response: bytes | None = None
        self._deferred: DeferredResponse | None = None

    def complete(self, result: Any) -> None:
        """Called once by the group. `result`: a JoinResult or SyncResult."""
        response = self._write(self._header.version, self._header.correlation_id, result)
        if self._deferred is None:
            self._response = response
        else:
            self._deferred.complete([response])

    def reply(self) -> Reply:
        if self._response is not None:
            return [self._response]
        self._deferred = DeferredResponse()
        return self._deferred


def answer_join_group(ctx: RequestContext, header: RequestHeader, frame: bytearray) -> Reply:
    """None if the API's handler has to answer."""
    if header.version < JOIN_GROUP_INSTANCE_ID or is_json():  # the handler's lines in the log have the request's fields
        return None
    try:
        group_id, request = read_join_group(ctx, Cursor(bytes(frame), header.body_offset), header.version)
    except (MalformedMessage, struct.error):
        return None
    if not ctx.may_read_group(group_id):
        return None
    response = RebalanceResponse(header, write_join_group)
    try:
        if not ctx.broker.group_coordinator.try_join_group(group_id, request, response):
            return None
    except KafkaError as reason:
        response.complete(JoinResult(request.member_id, reason.code))
    return response.reply()


def answer_sync_group(ctx: RequestContext, header: RequestHeader, frame: bytearray) -> Reply:
    """None if the API's handler has to answer."""
    if header.version < SYNC_GROUP_INSTANCE_ID:
        return None
    try:
        group_id, request = read_sync_group(Cursor(bytes(frame), header.body_offset), header.version)
    except (MalformedMessage, struct.error):
        return None
    if header.version >= SYNC_GROUP_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return None
    if not ctx.may_read_group(group_id):
        return None
    response = RebalanceResponse(header, write_sync_group)
    try:
        if not ctx.broker.group_coordinator.try_sync_group(group_id, request, response):
            return None
    except KafkaError as reason:
        response.complete(SyncResult(reason.code))
    return response.reply()


def read_join_group(ctx: RequestContext, cursor: Cursor, version: int) -> tuple[str, JoinRequest]:
    """Reads a request. `cursor`: at the end of the client id in its header. Raises MalformedMessage
    and struct.error.
    """
    flexible = version >= JOIN_GROUP_FLEXIBLE
    if flexible:
        skip_tagged_fields(cursor)
    group_id = _read_string(cursor, flexible)
    session_ms: int = cursor.read_fixed(_I32)
    rebalance_ms: int = cursor.read_fixed(_I32)
    member_id = _read_string(cursor, flexible)
    group_instance_id = cursor.read_string(flexible)
    protocol_type = _read_string(cursor, flexible)
    metadata_of_name: dict[str, bytes] = {}
    for _ in range(_read_count(cursor, flexible)):
        name = _read_string(cursor, flexible)
        metadata_of_name.setdefault(name, _read_bytes(cursor, flexible))
        if flexible:
            skip_tagged_fields(cursor)
    reason = cursor.read_string(flexible) if version >= JOIN_GROUP_REASON else None
    if flexible:
        skip_tagged_fields(cursor)
    return group_id, JoinRequest(
        member_id,
        group_instance_id,
        ctx.client_id or "",
        client_host(ctx),
        session_ms if rebalance_ms < 0 else rebalance_ms,
        session_ms,
        protocol_type,
        tuple(metadata_of_name.items()),
        may_skip_assignment=version >= JOIN_GROUP_SKIP_ASSIGNMENT,
        reason=reason or "",
    )


def write_join_group(version: int, correlation_id: int, result: JoinResult) -> bytes:
    """A whole response with its size in front."""
    flexible = version >= JOIN_GROUP_FLEXIBLE
    write_text, write_blob = (write_compact_string, write_compact_bytes) if flexible else (write_string, write_bytes)
    out = _begin_response(correlation_id, result.error, flexible)
    out += _I32.pack(result.generation)
    if version >= JOIN_GROUP_PROTOCOL_TYPE:
        write_text(out, result.protocol_type)
        write_text(out, result.protocol_name)
    else:
        write_text(out, result.protocol_name or "")
    write_text(out, result.leader)
    if version >= JOIN_GROUP_SKIP_ASSIGNMENT:
        out.append(1 if result.skip_assignment else 0)
    write_text(out, result.member_id)
    write_length(out, len(result.members), flexible)
    for member in result.members:
        write_text(out, member.member_id)
        write_text(out, member.group_instance_id)
        write_blob(out, member.metadata)
        if flexible:
            out.append(0)
    return _end_response(out, flexible)


def read_sync_group(cursor: Cursor, version: int) -> tuple[str, SyncRequest]:
    """Reads a request. `cursor`: at the end of the client id in its header. Raises MalformedMessage
    and struct.error.
    """
    flexible, has_protocol = version >= SYNC_GROUP_FLEXIBLE, version >= SYNC_GROUP_PROTOCOL
    if flexible:
        skip_tagged_fields(cursor)
    group_id = _read_string(cursor, flexible)
    generation: int = cursor.read_fixed(_I32)
    member_id = _read_string(cursor, flexible)
    group_instance_id = cursor.read_string(flexible)
    protocol_type = cursor.read_string(flexible) if has_protocol else None
    protocol_name = cursor.read_string(flexible) if has_protocol else None
    assignments: dict[str, bytes] = {}
    for _ in range(_read_count(cursor, flexible)):
        assigned_id = _read_string(cursor, flexible)
        assignments[assigned_id] = _read_bytes(cursor, flexible)
        if flexible:
            skip_tagged_fields(cursor)
    if flexible:
        skip_tagged_fields(cursor)
    return group_id, SyncRequest(member_id, group_instance_id, generation, protocol_type, protocol_name, assignments)


def write_sync_group(version: int, correlation_id: int, result: SyncResult) -> bytes:
    """A whole response with its size in front."""
    flexible = version >= SYNC_GROUP_FLEXIBLE
    out = _begin_response(correlation_id, result.error, flexible)
    if version >= SYNC_GROUP_PROTOCOL:
        write_compact_string(out, result.protocol_type)
        write_compact_string(out, result.protocol_name)
    if flexible:
        write_compact_bytes(out, result.assignment)
    else:
        write_bytes(out, result.assignment)
    return _end_response(out, flexible)


def _begin_response(correlation_id: int, error: int, flexible: bool) -> bytearray:
    return bytearray(
        _FLEXIBLE_HEAD.pack(0, correlation_id, 0, 0, error) if flexible else _HEAD.pack(0, correlation_id, 0, error)
    )


def _end_response(out: bytearray, flexible: bool) -> bytes:
    """As bytes, which uvloop writes to a socket without a view of them."""
    if flexible:
        out.append(0)
    _I32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _read_string(cursor: Cursor, flexible: bool) -> str:
    text = cursor.read_string(flexible)
    if text is None:
        raise MalformedMessage("null, where a string must be")
    return text


def _read_bytes(cursor: Cursor, flexible: bool) -> bytes:
    size: int = cursor.read_varint() - 1 if flexible else cursor.read_fixed(_I32)
    return bytes(cursor.read_bytes(size))


def _read_count(cursor: Cursor, flexible: bool) -> int:
    count = cursor.read_array_length(flexible)
    if count < 0:
        raise MalformedMessage("null, where an array must be")
    return count
