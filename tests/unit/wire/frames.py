"""Request frames as a broker receives them."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from hypothesis import HealthCheck, settings

from ottla_broker.wire.codec import write_request
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.request_header import RequestHeader, read_request_header

T = TypeVar("T")

some: Final = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def framed(key: int, version: int, request: Any, correlation_id: int = 5) -> bytearray:
    """A request frame without its size."""
    return write_request(key, version, correlation_id, "client", request)[4:]


def read(frame: bytearray, how: Callable[[bytearray, RequestHeader], T]) -> T | None:
    """The result of `how` for a copy of the frame; None if it is malformed."""
    try:
        return how(bytearray(frame), read_request_header(frame))
    except MalformedMessage:
        return None
