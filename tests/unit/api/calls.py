"""Calls the hot handlers as a connection would, and reads what they answer with kio's classes."""

import asyncio
from asyncio import Future
from typing import Any, cast

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.api.produce import produce
from ottla_broker.broker import Broker
from ottla_broker.requests.context import Buffers, Reply
from ottla_broker.security.authorizer import Authorizer
from ottla_broker.wire.codec import read_request_header, read_response, write_request
from tests.unit.api.brokers import SmallBroker, context

PLENTY = 1 << 30


def fetch_handler_of(broker: SmallBroker) -> FetchHandler:
    return FetchHandler(cast(Broker, broker))


def call_produce(broker: SmallBroker, request: Any, version: int = 9, authorizer: Authorizer | None = None) -> Reply:
    frame = write_request(0, version, 1, "me", request)[4:]
    return produce(context(broker, version, authorizer), frame, read_request_header(frame), PLENTY)


def call_fetch(
    handler: FetchHandler,
    broker: SmallBroker,
    request: Any,
    version: int = 12,
    room: int = PLENTY,
    authorizer: Authorizer | None = None,
) -> Reply:
    frame = write_request(1, version, 1, "me", request)[4:]
    return handler(context(broker, version, authorizer), frame, read_request_header(frame), room)


def answered(reply: Reply, key: int, version: int) -> Any:
    """The answer that came at once, and is whole."""
    assert reply is not None
    assert not isinstance(reply, Future), "it waits"
    return read(reply, key, version)


def read(buffers: Buffers, key: int, version: int) -> Any:
    whole = b"".join(buffers)
    assert int.from_bytes(whole[:4]) == len(whole) - 4
    return read_response(whole[4:], key, version)


async def waited(reply: Reply, key: int, version: int) -> Any:
    assert isinstance(reply, Future), "it does not wait"
    return read(await asyncio.wait_for(reply, 10), key, version)
