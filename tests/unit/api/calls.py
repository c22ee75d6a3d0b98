"""Calls the handlers of Produce and Fetch as a connection does, and decodes their responses with
kio.
"""

import asyncio
from asyncio import Future
from typing import Any, cast

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.api.produce import produce
from ottla_broker.broker import Broker
from ottla_broker.requests.reply import Buffers, Reply
from ottla_broker.security.authorizer import Authorizer
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, write_request
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import SmallBroker, context

PLENTY = 1 << 30


def fetch_handler_of(broker: SmallBroker) -> FetchHandler:
    return FetchHandler(cast(Broker, broker))


def call_produce(broker: SmallBroker, request: Any, authorizer: Authorizer | None = None) -> Reply:
    """Calls the handler in version 9."""
    frame = write_request(ApiKey.PRODUCE, 9, 1, "me", request)[4:]
    return produce(context(broker, 9, authorizer), frame, read_request_header(frame), PLENTY)


def call_fetch(
    handler: FetchHandler,
    broker: SmallBroker,
    request: Any,
    version: int = 12,
    max_response_bytes: int = PLENTY,
    authorizer: Authorizer | None = None,
) -> Reply:
    frame = write_request(ApiKey.FETCH, version, 1, "me", request)[4:]
    return handler(context(broker, version, authorizer), frame, read_request_header(frame), max_response_bytes)


def decode_fetch(reply: Reply, version: int = 12) -> Any:
    """The response of a Fetch handler that did not wait."""
    return _decode_immediate(reply, ApiKey.FETCH, version)


async def decode_delayed_fetch(reply: Reply) -> Any:
    """Waits at most 10 s for the response, in version 12, of a Fetch handler that waits."""
    return await _decode_delayed(reply, ApiKey.FETCH, 12)


def decode_produce(reply: Reply, version: int = 9) -> Any:
    """The response of a Produce handler that did not wait."""
    return _decode_immediate(reply, ApiKey.PRODUCE, version)


async def decode_delayed_produce(reply: Reply) -> Any:
    """Waits at most 10 s for the response, in version 9, of a Produce handler that waits."""
    return await _decode_delayed(reply, ApiKey.PRODUCE, 9)


def produce_results(response: Any) -> list[tuple[str, int, ErrorCode, int]]:
    """(topic, partition, error code, base offset) of each partition of a Produce response."""
    return [(t.name, p.index, p.error_code, p.base_offset) for t in response.responses for p in t.partition_responses]


def _decode_immediate(reply: Reply, key: ApiKey, version: int) -> Any:
    assert reply is not None
    assert not isinstance(reply, Future), "the handler waits"
    return _decode(reply, key, version)


async def _decode_delayed(reply: Reply, key: ApiKey, version: int) -> Any:
    assert isinstance(reply, Future), "the handler does not wait"
    return _decode(await asyncio.wait_for(reply, 10), key, version)


def _decode(buffers: Buffers, key: ApiKey, version: int) -> Any:
    frame = b"".join(buffers)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    return read_response(frame[4:], key, version)
