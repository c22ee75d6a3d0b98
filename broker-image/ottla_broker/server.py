"""Sockets of a broker: listeners, who may connect, and the bounds that all connections share."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla_broker.api.context import Buffers, HotHandler
from ottla_broker.api.table import FETCH, PRODUCE, served
from ottla_broker.connection import Connection
from ottla_broker.memory import Pool
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.wire.framing import SCRATCH_BYTES

if TYPE_CHECKING:
    from ottla_broker.broker import Broker

logger = logging.getLogger(__name__)

STUCK_S = 10.0  # a reader that took nothing for so long gives way when others wait for the memory it holds
LEAST_ROOM = 64 * 1024  # bytes that a fetch may always answer


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what connections may take; see the settings of these names. `response_bytes`: bytes that transports hold for slow
    readers, over all connections, before fetches wait."""

    request_bytes: int = 100 << 20  # socket.request.max.bytes
    requests_bytes: int = 256 << 20  # queued.max.request.bytes
    responses_bytes: int = 64 << 20
    queued_bytes: int = 1 << 20  # connection.queued.max.bytes
    idle_s: float = 600.0  # connections.max.idle.ms
    connections: int = 2**31 - 1  # max.connections
    connections_per_ip: int = 2**31 - 1  # max.connections.per.ip


class Server:
    """Serves a broker that has started. One per broker, on the running loop."""

    def __init__(self, broker: "Broker", limits: Limits | None = None, authorizer: Authorizer | None = None) -> None:
        self.broker = broker
        self.limits = limits or Limits()
        self.authorizer = authorizer or AllowAll()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.requests = Pool(self.limits.requests_bytes)
        self.responses = Pool(self.limits.responses_bytes)
        self.connections: set[Connection] = set()
        self._per_ip: Counter[str] = Counter()
        self._listeners: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._hot = self._hot_handlers()
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._sweeper: asyncio.TimerHandle | None = None
        self._stuck_look: asyncio.TimerHandle | None = None
        self.refused = 0  # connections turned away

    def _hot_handlers(self) -> dict[int, HotHandler]:
        from ottla_broker.api.fetch import Fetching
        from ottla_broker.api.produce import produce

        return {PRODUCE: produce, FETCH: Fetching(self.broker)}

    async def bind(self, host: str | None, port: int, listener: str = "PLAINTEXT", backlog: int = 128) -> int:
        """Takes a port and returns it, chosen by the system if it was 0; nobody is let in before `serve`. OSError when it is taken."""
        bound = await self._loop.create_server(
            lambda: Connection(self, listener), host or None, port, backlog=backlog, start_serving=False
        )
        self._listeners.append(bound)
        taken: int = bound.sockets[0].getsockname()[1]
        return taken

    async def serve(self) -> None:
        """Starts to accept connections on every port that was bound."""
        for listener in self._listeners:
            await listener.start_serving()
        self._sweep()

    async def close(self) -> None:
        """Stops listening and closes every connection."""
        for listener in self._listeners:
            listener.close()
        for timer in (self._sweeper, self._stuck_look):
            if timer is not None:
                timer.cancel()
        for connection in tuple(self.connections):
            connection.close("the broker stops")
        for listener in self._listeners:
            await listener.wait_closed()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- for connections

    def admit(self, connection: Connection) -> bool:
        host = connection.peer.host
        if len(self.connections) >= self.limits.connections or self._per_ip[host] >= self.limits.connections_per_ip:
            self.refused += 1
            logger.warning("turned a connection of %s away: there are %d already", host, len(self.connections))
            return False
        self.connections.add(connection)
        self._per_ip[host] += 1
        return True

    def leave(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            host = connection.peer.host
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]

    def hot_handler(self, key: int, version: int) -> HotHandler | None:
        handler = self._hot.get(key)
        if handler is None:
            return None
        api = served()[key]
        return handler if api.low <= version <= api.high else None

    def run(self, work: Coroutine[Any, Any, Buffers]) -> asyncio.Task[Buffers]:
        """Runs a handler to its end, even if its connection goes away meanwhile: what it began may matter to others."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def room(self) -> int:
        """Bytes that one answer may have now: a share of what is left, so that no single reader takes all of it."""
        return max(LEAST_ROOM, (self.responses.limit - self.responses.taken) // 2)

    def look_for_stuck_readers(self) -> None:
        """A fetch waits for memory: from now on, readers that take nothing lose theirs."""
        if self._stuck_look is None:
            self._stuck_look = self._loop.call_later(STUCK_S / 4, self._close_stuck_readers)

    def _close_stuck_readers(self) -> None:
        self._stuck_look = None
        for connection in [one for one in self.connections if one.unsent]:
            connection.recount_unsent()
            if connection.unsent and self.now() - connection.stuck_since >= STUCK_S:
                connection.close(f"it left {connection.unsent} bytes unread for {STUCK_S:.0f} s, and others wait for memory")
        if self.responses.wanted:
            self.look_for_stuck_readers()

    def _sweep(self) -> None:
        """Closes idle connections; looks a few times per idle time."""
        if self.limits.idle_s <= 0:
            return
        oldest = self.now() - self.limits.idle_s
        for connection in [one for one in self.connections if one.idle and one.active_at < oldest]:
            connection.close(f"idle for {self.limits.idle_s:.0f} s")
        self._sweeper = self._loop.call_later(min(30.0, self.limits.idle_s / 4), self._sweep)
