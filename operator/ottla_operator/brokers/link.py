"""The way to brokers: who is asked, how an answer's code becomes an error, and what it means when nobody answers."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Protocol

from ottla_broker.wire.errors import ErrorCode, KafkaError


class Unreachable(Exception):
    """No broker answers at the addresses given."""


class Link(Protocol):
    """Requests are kio's classes of any version; a broker that speaks another is asked in its own, and the answer comes back in the version asked."""

    async def ask(self, request: Any, *, broker: int | None = None) -> Any:
        """Asks the broker with this id; any broker when None."""
        ...

    async def ask_controller(self, request: Any) -> Any: ...

    async def ask_coordinator(self, group: str, request: Any) -> Any:
        """Asks the broker that coordinates a consumer group."""
        ...

    async def close(self) -> None: ...


def checked(code: ErrorCode | int, message: str | None, about: str, *, allow: Collection[ErrorCode] = ()) -> None:
    """KafkaError with a sentence for people unless the code is none or one of `allow`."""
    if code and (found := ErrorCode(code)) not in allow:
        raise KafkaError(found, f"{about}: {message or spoken(found)}")


def spoken(code: ErrorCode) -> str:
    """An error code in words: `not leader or follower`."""
    return code.name.replace("_", " ")


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Link]:
    """A link to a cluster by the addresses of some of its brokers. Unreachable when none answers."""
    raise NotImplementedError(bootstrap)
    yield
