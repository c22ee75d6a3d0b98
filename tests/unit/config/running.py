"""A whole broker without sockets, on a folder of the test's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla_broker.api.context import Context, Peer
from ottla_broker.broker import Broker
from ottla_broker.config import Config
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.register.file import FileRegister
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.runtime import Runtime
from ottla_broker.security.authorizer import AllowAll, Authorizer, Operation, Resource
from ottla_broker.security.principal import Principal


@asynccontextmanager
async def broker(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """Started, with the topic `t` of two partitions. `settings`: names with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = Config.of({"log.dirs": str(folder / "data"), "broker.rack": "r1", **given})
    runtime = Runtime()
    made = Broker(config, FileRegister(str(folder / "register.json"), runtime), runtime=runtime)
    try:
        await made.start({"PLAINTEXT": Endpoint("somewhere", 9092)})
        await made.controller.ensure_topic(NewTopic("t", 2, 1, config={"retention.ms": "5"}))
        yield made
    finally:
        await made.stop()


def context(of: Broker, version: int, authorizer: Authorizer | None = None) -> Context:
    return Context(of, Peer("here", 1, "PLAINTEXT"), version, "a test", authorizer or AllowAll())


class Nobody:
    """May nothing."""

    allows_everything = False

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return False
