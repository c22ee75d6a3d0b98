"""The header of a request."""

import struct
from typing import Final

from ottla_broker.wire.message_reader import MalformedMessage

_HEADER: Final = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id


class RequestHeader:
    """`body_offset` is the offset in the frame at which tagged fields, if any, and the body
    begin.

    Not a dataclass, because one is created for each request, and even in a compiled module the
    constructor of a dataclass is interpreted.
    """

    __slots__ = ("api_key", "body_offset", "client_id", "correlation_id", "version")

    def __init__(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None, body_offset: int
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """Reads the header up to the client id. Raises MalformedMessage."""
    try:
        api_key, version, correlation_id, size = _HEADER.unpack_from(frame)
        if size < 0:
            return RequestHeader(api_key, version, correlation_id, None, _HEADER.size)
        end = _HEADER.size + size
        if end > len(frame):
            raise MalformedMessage("the client id is longer than the request")
        client_id = str(frame[_HEADER.size : end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"invalid request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, end)
