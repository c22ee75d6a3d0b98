"""Sockets of a broker: listeners, who may connect, and the bounds that all connections share."""

import asyncio
import logging
import os
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla_broker.api.in_process import InProcess
from ottla_broker.api.table import FETCH, PRODUCE, served
from ottla_broker.busy_poll import BusyPoll
from ottla_broker.config import (
    CONNECTION_QUEUED_MAX_BYTES,
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
    Config,
    Listener,
)
from ottla_broker.connection import Connection
from ottla_broker.handshakes import Handshakes
from ottla_broker.memory_pool import MemoryPool
from ottla_broker.metrics import API_KEY_LIMIT
from ottla_broker.requests.context import Buffers, FrameHandler
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.wire.framing import SCRATCH_BYTES
from ottla_broker.wire.listener_tls import TlsConfigError
from ottla_broker.wire.tls_transport import TlsTransport

if TYPE_CHECKING:
    from ottla_broker.broker import Broker

logger = logging.getLogger(__name__)

ANSWERS_WITHIN_S = 0.5  # when it stops
LEAST_ROOM = 64 * 1024  # bytes that a fetch may always answer


class ListenError(Exception):
    """Why a listener cannot be had, in one line."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of what connections may take. Requests and answers that wait are bounded over all connections: half of
    `queued.max.request.bytes` each."""

    request_bytes: int = 100 << 20  # socket.request.max.bytes
    all_requests_bytes: int = 128 << 20
    all_responses_bytes: int = 128 << 20
    queued_bytes: int = 1 << 20  # connection.queued.max.bytes
    idle_s: float = 600.0  # connections.max.idle.ms; 0: never
    slow_reader_timeout_s: float = (
        10.0  # a reader that took nothing for so long gives way when others wait for the memory it holds
    )

    @classmethod
    def of(cls, config: Config) -> "ConnectionLimits":
        both = config(QUEUED_MAX_REQUEST_BYTES)
        half = both // 2 if both > 0 else sys.maxsize
        return cls(
            request_bytes=config(SOCKET_REQUEST_MAX_BYTES),
            all_requests_bytes=half,
            all_responses_bytes=half,
            queued_bytes=config(CONNECTION_QUEUED_MAX_BYTES),
            idle_s=max(config(CONNECTIONS_MAX_IDLE_MS), 0) / 1000,
        )


ListenOn = Callable[[Listener, Config], socket.socket]
"""Gives a socket that listens where a listener wants it, or raises OSError; the running loop's `create_server` takes it."""


def listen_on_socket(listener: Listener, config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host or not listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not listener.host else 1)
        for option, size in (
            (socket.SO_SNDBUF, config(SOCKET_SEND_BUFFER_BYTES)),
            (socket.SO_RCVBUF, config(SOCKET_RECEIVE_BUFFER_BYTES)),
        ):
            if size != -1:  # accepted connections inherit it
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind((listener.host, listener.port))
        sock.listen(config(SOCKET_LISTEN_BACKLOG_SIZE))  # only this makes the port ours
    except OSError:
        sock.close()
        raise
    return sock


def tls_of(listener: Listener, config: Config, now: float) -> ssl.SSLContext:
    """`now`: seconds since 1970. Also says when clients will refuse the certificate. ListenError."""
    tls = config.tls(listener.name)
    try:
        context, shown = tls.load()
    except TlsConfigError as reason:
        raise ListenError(f"listeners={listener}: {reason}") from None
    if why := shown.validity_problem(now):
        logger.error("listeners=%s: clients refuse the certificate of %s: %s", listener, tls.keystore_setting, why)
    return context


class Server:
    """Serves a broker: other brokers from the beginning, clients from when it is ready. One per broker, on the running loop.
    `take_port`: for a world without sockets. `vigil`: only for one with real time."""

    def __init__(
        self,
        broker: "Broker",
        limits: ConnectionLimits | None = None,
        authorizer: Authorizer | None = None,
        listen_on: "ListenOn | None" = None,
        busy_poll: BusyPoll | None = None,
    ) -> None:
        self.broker = broker
        self.vigil = busy_poll
        self.limits = limits or ConnectionLimits.of(broker.config)
        self.authorizer = authorizer or AllowAll()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.requests = MemoryPool(self.limits.all_requests_bytes)
        self.responses = MemoryPool(self.limits.all_responses_bytes)
        self.connections: dict[Connection, None] = {}  # in their order, so that a run can be repeated
        self._take_port = listen_on or listen_on_socket
        self._per_ip: Counter[str] = Counter()
        self.listening: list[Listener] = []
        self._bound: list[tuple[str, socket.socket]] = []
        self._tls: dict[str, ssl.SSLContext] = {}  # by listener's name
        self._handshakes = Handshakes(self._has_room)
        self._listeners: list[asyncio.Server] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._hot = self._hot_handlers()
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._sweeper: asyncio.TimerHandle | None = None
        self._stuck_look: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Future[None] | None = None  # while it stops
        self.refused = 0  # connections turned away
        self.served = [0] * API_KEY_LIMIT  # requests by API key
        broker.controller_channel.handle_locally = InProcess(broker, self.authorizer)
        broker.when_ready.append(self._let_clients_in)

    def _hot_handlers(self) -> dict[int, FrameHandler]:
        from ottla_broker.api.fetch import FetchHandler
        from ottla_broker.api.produce import produce

        return {PRODUCE: produce, FETCH: FetchHandler(self.broker)}

    def bind(self) -> dict[str, Listener]:
        """Takes the ports of every listener, so that a port in use is known before anything else starts; nobody can
        connect yet.

        Returns how clients reach each listener, by its name: as advertised, with the host and port filled in that
        were taken. Raises ListenError.
        """
        config = self.broker.config
        reached = {}
        for listener in config.listeners:
            if config.security_protocol(listener.name) == "SSL":
                self._tls[listener.name] = tls_of(listener, config, self.broker.runtime.now_ms() / 1000)
            try:
                sock = self._take_port(listener, config)
            except OSError as error:
                # The resolver has error numbers of its own, below 0.
                why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
                raise ListenError(f"cannot listen on {listener}: {why.lower()}") from error
            self._bound.append((listener.name, sock))
            taken: int = sock.getsockname()[1]
            self.listening.append(listener._replace(port=taken))
            wanted = next(one for one in config.advertised_listeners if one.name == listener.name)
            host = wanted.host or socket.gethostname()
            reached[listener.name] = Listener(listener.name, host, wanted.port or taken)
        return reached

    async def serve(self) -> None:
        """Lets everybody connect."""
        backlog = self.broker.config(SOCKET_LISTEN_BACKLOG_SIZE)
        while self._bound:
            name, sock = self._bound.pop(0)
            made: Callable[[], asyncio.BufferedProtocol] = partial(Connection, self, name)
            if (context := self._tls.get(name)) is not None:
                made = partial(TlsTransport, context, self._handshakes, made)
            opened = await self._loop.create_server(made, sock=sock, backlog=backlog)
            self._listeners.append(opened)
        self._sweep()

    async def close(self) -> None:
        """Stops listening, answers what was asked, for a while, and closes every connection."""
        for _, sock in self._bound:
            sock.close()
        for listener in self._listeners:
            listener.close()
        for timer in (self._sweeper, self._stuck_look):
            if timer is not None:
                timer.cancel()
        self._handshakes.close()
        for connection in tuple(self.connections):
            connection.finish()
        if self.connections:
            self._all_gone = self._loop.create_future()
            await asyncio.wait([self._all_gone], timeout=ANSWERS_WITHIN_S)
        for connection in tuple(self.connections):
            connection.close("the broker stops")
        for listener in self._listeners:
            await listener.wait_closed()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _let_clients_in(self) -> None:
        for connection in tuple(self.connections):
            connection.go_on()

    # --- for connections

    def admit(self, connection: Connection) -> bool:
        """Whether one more is allowed; these limits can change while the broker runs."""
        host = connection.peer.host
        if not self._has_room(host):
            return False
        self.connections[connection] = None
        self._per_ip[host] += 1
        return True

    def _has_room(self, host: str) -> bool:
        config = self.broker.config
        most_of_host = config(MAX_CONNECTIONS_PER_IP_OVERRIDES).get(host, config(MAX_CONNECTIONS_PER_IP))
        for there, most, setting in (
            (len(self.connections) + len(self._handshakes), config(MAX_CONNECTIONS), MAX_CONNECTIONS),
            (self._per_ip[host] + self._handshakes.of_host(host), most_of_host, MAX_CONNECTIONS_PER_IP),
        ):
            if there >= most:
                self.refused += 1
                logger.warning("turned a connection of %s away: %d are open, and so is %s", host, there, setting.name)
                return False
        return True

    def leave(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            if not self.connections and self._all_gone is not None and not self._all_gone.done():
                self._all_gone.set_result(None)
            host = connection.peer.host
            self._per_ip[host] -= 1
            if not self._per_ip[host]:
                del self._per_ip[host]

    def hot_handler(self, key: int, version: int) -> FrameHandler | None:
        handler = self._hot.get(key)
        if handler is None:
            return None
        api = served()[key]
        return handler if api.low <= version <= api.high else None

    def run(self, work: Coroutine[Any, Any, Buffers]) -> asyncio.Task[Buffers]:
        """Runs a handler to its end, even if its connection goes away meanwhile: what it began may matter to
        others."""
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def room(self) -> int:
        """Bytes that one answer may have now: a share of what is left, so that no single reader takes all of it."""
        return max(LEAST_ROOM, (self.responses.limit - self.responses.taken) // 2)

    def look_for_stuck_readers(self) -> None:
        """A fetch waits for memory: from now on, readers that take nothing lose theirs."""
        if self._stuck_look is None:
            self._stuck_look = self._loop.call_later(self.limits.slow_reader_timeout_s / 4, self._close_stuck_readers)

    def _close_stuck_readers(self) -> None:
        self._stuck_look = None
        for connection in [one for one in self.connections if one.unsent]:
            connection.recount_unsent()
            if connection.unsent and self.now() - connection.stuck_since >= self.limits.slow_reader_timeout_s:
                connection.close(
                    f"it left {connection.unsent} bytes unread for {self.limits.slow_reader_timeout_s:.0f} s, and others wait for memory"
                )
        if self.responses.has_waiters:
            self.look_for_stuck_readers()

    def _sweep(self) -> None:
        """Closes idle connections; looks a few times per idle time."""
        if self.limits.idle_s <= 0:
            return
        oldest = self.now() - self.limits.idle_s
        for connection in [one for one in self.connections if one.idle and one.active_at < oldest]:
            connection.close(f"idle for {self.limits.idle_s:.0f} s")
        self._sweeper = self._loop.call_later(min(30.0, self.limits.idle_s / 4), self._sweep)
