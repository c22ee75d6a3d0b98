"""A whole broker without sockets, on a folder of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla_broker.broker import Broker
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.authorizer import AllowAll, Authorizer, Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal
from tests.unit.making_topics import ensure_topic
from tests.unit.running import running


@asynccontextmanager
async def broker(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """Started, with the topic `t` of two partitions. `settings`: names with underscores for dots."""
    async with running(folder / "data", disk=None, broker_rack="r1", **settings) as made:
        await ensure_topic(made.active_controller(), NewTopic("t", 2, 1, config={"retention.ms": "5"}))
        yield made


def context(of: Broker, version: int, authorizer: Authorizer | None = None) -> RequestContext:
    return RequestContext(of, ConnectionState("here", 1, "PLAINTEXT"), version, "a test", authorizer or AllowAll())


class Nobody:
    """May nothing."""

    allows_everything = False

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return False

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        return False
