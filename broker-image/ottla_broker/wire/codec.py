"""Encodes and decodes requests and responses, by API key and version.

A request is: size i32 · header (API key i16, version i16, correlation id i32, client id as nullable
string with an i16 length in all versions; tagged fields in flexible versions) · body. A response
is: size i32 · correlation id i32 · tagged fields in flexible versions, but never in ApiVersions,
whose reader does not know the broker's versions yet · body.
https://kafka.apache.org/protocol#protocol_messages
"""

import struct
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema

from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, message_reader, skip_tagged_fields
from ottla_broker.wire.message_writer import message_writer
from ottla_broker.wire.request_header import RequestHeader

_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_REGISTRATION: Final = (int(ApiKey.BROKER_REGISTRATION), 4)
_SIZE_AND_HEADER: Final = struct.Struct(">ihhih")
_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")
_SIZE: Final = struct.Struct(">i")


@cache
def request_class(api_key: int, version: int) -> type:
    """The class of a request: kio's, or Ottla's own. Raises KioIndexError (a RuntimeError) if there
    is none.
    """
    if api_key >= FIRST_OWN_KEY and (own := _own_messages().get(api_key)) is not None:
        return own[0]
    if (api_key, version) == _REGISTRATION:  # once in a broker's life: imported when it is used
        from ottla_broker.wire.registration_message import OttlaBrokerRegistrationRequest

        return OttlaBrokerRegistrationRequest
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> type:
    if api_key >= FIRST_OWN_KEY and (own := _own_messages().get(api_key)) is not None:
        return own[1]
    return load_response_schema(api_key, version)


def _own_messages() -> dict[int, tuple[type, type]]:
    from ottla_broker.wire.recovery_messages import MESSAGES  # hardly ever needed

    return MESSAGES


def read_request(frame: bytes, header: RequestHeader, anchor: type) -> Any:
    """Reads the body of a request, as the `anchor` class. Raises MalformedMessage."""
    cls = request_class(header.api_key, header.version)
    cursor = Cursor(frame, header.body_offset)
    try:
        if cls.__flexible__:  # type: ignore[attr-defined]
            skip_tagged_fields(cursor)
        return convert_message(message_reader(cls)(cursor), anchor)
    except struct.error as error:
        raise MalformedMessage(f"{cls.__name__} ends early: {error}") from error


def read_response(frame: bytes, api_key: int, version: int, anchor: type | None = None) -> Any:
    """Reads the body of a response frame without its size, as the `anchor` class if given.

    Raises MalformedMessage.
    """
    cls = response_class(api_key, version)
    cursor = Cursor(frame, 4)
    try:
        if cls.__flexible__ and api_key != _API_VERSIONS:  # type: ignore[attr-defined]
            skip_tagged_fields(cursor)
        found = message_reader(cls)(cursor)
    except struct.error as error:
        raise MalformedMessage(f"{cls.__name__} ends early: {error}") from error
    return found if anchor is None else convert_message(found, anchor)


def write_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytearray:
    """A whole response with its size in front; `response` may be of any version of the message."""
    cls = response_class(api_key, version)
    out = bytearray(_SIZE_AND_CORRELATION_ID.size)
    if cls.__flexible__ and api_key != _API_VERSIONS:  # type: ignore[attr-defined]
        out.append(0)
    message_writer(cls)(out, convert_message(response, cls))
    _SIZE_AND_CORRELATION_ID.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def write_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any) -> bytearray:
    """A whole request with its size in front; `request` may be of any version of the message."""
    cls = request_class(api_key, version)
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    out = bytearray(_SIZE_AND_HEADER.pack(0, api_key, version, correlation_id, size))
    out += name
    if cls.__flexible__:  # type: ignore[attr-defined]
        out.append(0)
    message_writer(cls)(out, convert_message(request, cls))
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out
