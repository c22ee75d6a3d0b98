"""What a handler knows besides its request."""

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from ottla_broker.security.authorizer import OPERATIONS, Authorizer, Operation, Resource
from ottla_broker.security.principal import ANONYMOUS, Principal
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.codec import RequestHeader

if TYPE_CHECKING:
    from ottla_broker.broker import Broker


class CloseConnection(Exception):
    """A handler wants the connection closed: the only way to tell a producer with acks=0 that something is wrong."""


@dataclass(slots=True)
class ConnectionState:
    """The other end of one connection. `software_*` is what ApiVersions told us of the client (KIP-511)."""

    host: str
    port: int
    listener: str
    principal: Principal = ANONYMOUS
    software_name: str = "unknown"
    software_version: str = "unknown"
    is_follower: bool = False  # a broker that fetches as a replica
    refused_s: float = -inf  # when it last heard, by the loop's clock, that a leader has just stepped down


@dataclass(slots=True)
class RequestContext:
    """One request: `version` is the one it was sent in, whatever the handler's anchor is."""

    broker: "Broker"
    connection: ConnectionState
    version: int
    client_id: str | None
    authorizer: Authorizer

    def is_authorized(self, operation: Operation, resource: Resource) -> bool:
        return self.authorizer.allows(self.connection.principal, self.connection.host, operation, resource)

    def authorized_operations(self, resource: Resource) -> int:
        """What the caller may do with a resource, as the bit field of Metadata and the Describe APIs (KIP-430)."""
        return sum(1 << operation for operation in OPERATIONS[resource.kind] if self.is_authorized(operation, resource))


Buffers = Sequence[Buffer]
Reply = Buffers | Future[Buffers] | None


class DeferredResponse(asyncio.Future[Buffers]):
    """A reply that comes later. `give` hands it to its connection in the same turn of the loop; a future's own callbacks come in the next."""

    on_complete: "Callable[[asyncio.Future[Buffers]], None] | None" = None

    def complete(self, buffers: Buffers) -> None:
        if not self.done():
            self.set_result(buffers)
            if self.on_complete is not None:
                self.on_complete(self)


class DelayedFetchResponse(DeferredResponse):
    """A reply that waits for something that is not due yet. `hurry`: gives it as it is now. `over`: called once, when it waits no longer; both are let
    go then, or the reply and who waits would hold each other, and their records, until the garbage collector finds them."""

    def __init__(
        self, force_complete: Callable[[], None], over: Callable[[], None], *, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(loop=loop)
        self.force_complete = force_complete
        self._over = over

    def complete(self, buffers: Buffers) -> None:
        self._let_go()
        super().complete(buffers)

    def cancel(self, msg: Any | None = None) -> bool:
        self._let_go()
        return super().cancel(msg)

    def _let_go(self) -> None:
        over, self.force_complete, self._over = self._over, _nothing, _nothing
        over()


def _nothing() -> None:
    """What is left to do when nothing is."""


class FrameHandler(Protocol):
    """A handler of the hot path, which reads and writes its messages itself and makes no task. It answers a whole
    response with its size in front, or a future of one; None when the client wants no answer. `room`: bytes that the
    answer should not exceed, for want of memory. Raises Malformed and HangUp."""

    def __call__(self, context: RequestContext, frame: bytearray, header: RequestHeader, room: int) -> Reply: ...
