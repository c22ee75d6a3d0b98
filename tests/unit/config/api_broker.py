"""A broker without sockets and with a topic, for tests of APIs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla_broker.broker import Broker
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.authorizer import AllowAll, Authorizer
from tests.unit.broker_without_sockets import run_broker
from tests.unit.topic_creation import ensure_topic


@asynccontextmanager
async def broker_with_topic(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A started broker with the topic `t` of two partitions. `settings`: with underscores for
    dots.
    """
    async with run_broker(folder / "data", disk=None, broker_rack="r1", **settings) as broker:
        await ensure_topic(broker.active_controller(), NewTopic("t", 2, 1, config={"retention.ms": "5"}))
        yield broker


def context(broker: Broker, version: int, authorizer: Authorizer | None = None) -> RequestContext:
    return RequestContext(
        broker, ConnectionState("127.0.0.1", 1, "PLAINTEXT"), version, "a test", authorizer or AllowAll()
    )
