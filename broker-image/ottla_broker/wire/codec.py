"""Messages by API key and version: headers, bodies, and the classes that hold them.

Layout of a request: size i32 · header (api key i16, version i16, correlation id i32, client id nullable string with
an i16 length even in flexible versions, and in those a section of tags) · body. Of a response: size i32 ·
correlation id i32 · in flexible versions a section of tags, but never for ApiVersions, whose reader cannot know yet
what the broker speaks · body. https://kafka.apache.org/protocol#protocol_messages
"""

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, message_reader, skip_tagged_fields
from ottla_broker.wire.message_writer import message_writer

API_VERSIONS: Final = 18

_FRONT = struct.Struct(">hhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_REQUEST_FRONT = struct.Struct(">ihhih")


@dataclass(slots=True)
class RequestHeader:
    """`body`: where the body starts in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


@cache
def request_class(api_key: int, version: int) -> type:
    """kio's class of a request; KioIndexError (a RuntimeError) when it has none."""
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> type:
    return load_response_schema(api_key, version)


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """The header up to the client id; `body` is where the tags start, if the version has any. Raises Malformed."""
    try:
        api_key, version, correlation_id, size = _FRONT.unpack_from(frame)
        if size < 0:
            return RequestHeader(api_key, version, correlation_id, None, _FRONT.size)
        if _FRONT.size + size > len(frame):
            raise MalformedMessage("the client id is longer than the request")
        client_id = str(frame[_FRONT.size : _FRONT.size + size], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"no request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, _FRONT.size + size)


def read_request(frame: bytes, header: RequestHeader, anchor: type) -> Any:
    """The body of a request, converted to the `anchor` class. Raises Malformed."""
    sent = request_class(header.api_key, header.version)
    cursor = Cursor(frame, header.body_offset)
    try:
        if sent.__flexible__:  # type: ignore[attr-defined]
            skip_tagged_fields(cursor)
        return convert_message(message_reader(sent)(cursor), anchor)
    except struct.error as error:
        raise MalformedMessage(f"{sent.__name__} ends early: {error}") from error


def write_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytearray:
    """A whole response with its size in front; `response` may be of any version of that message."""
    wanted = response_class(api_key, version)
    out = bytearray(8)
    if wanted.__flexible__ and api_key != API_VERSIONS:  # type: ignore[attr-defined]
        out.append(0)
    message_writer(wanted)(out, convert_message(response, wanted))
    _SIZE_AND_CORRELATION.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def write_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any) -> bytearray:
    """A whole request with its size in front; `request` may be of any version of that message."""
    wanted = request_class(api_key, version)
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    out = bytearray(_REQUEST_FRONT.pack(0, api_key, version, correlation_id, size))
    out += name
    if wanted.__flexible__:  # type: ignore[attr-defined]
        out.append(0)
    message_writer(wanted)(out, convert_message(request, wanted))
    struct.pack_into(">i", out, 0, len(out) - 4)
    return out


def read_response(frame: bytes, api_key: int, version: int, anchor: type | None = None) -> Any:
    """The body of a response (without its size), converted to `anchor` unless that is None. Raises Malformed."""
    sent = response_class(api_key, version)
    cursor = Cursor(frame, 4)
    try:
        if sent.__flexible__ and api_key != API_VERSIONS:  # type: ignore[attr-defined]
            skip_tagged_fields(cursor)
        found = message_reader(sent)(cursor)
    except struct.error as error:
        raise MalformedMessage(f"{sent.__name__} ends early: {error}") from error
    return found if anchor is None else convert_message(found, anchor)
