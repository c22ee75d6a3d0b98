"""Sockets of a broker: its listeners, which connections are admitted, and which are closed to free
connections or memory for others.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla_broker.broker import Broker
from ottla_broker.busy_poll import BusyPoll
from ottla_broker.config import (
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
    Config,
    Listener,
)
from ottla_broker.config.listener_security import accepts_plaintext
from ottla_broker.connection import Connection
from ottla_broker.connection_limits import ConnectionLimits
from ottla_broker.connection_quotas import ConnectionQuotas, Room
from ottla_broker.connection_services import ConnectionServices
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.group_turn import GroupTurn
from ottla_broker.handshakes import Handshakes
from ottla_broker.listener_certificates import ListenerCertificates, ListenError
from ottla_broker.logins import ListenerLogins
from ottla_broker.memory_pool import MemoryPool
from ottla_broker.produce_turn import ProduceTurn
from ottla_broker.receive_buffer import adapts_receive_buffers
from ottla_broker.requests.context import ConnectionState
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.wire.client_security import TLS_PROTOCOLS
from ottla_broker.wire.framing import SCRATCH_BYTES, FrameReader
from ottla_broker.wire.tls_transport import TlsTransport

logger = logging.getLogger(__name__)

DRAIN_S: Final = 0.5
"""How long a stopping server waits for the requests in progress."""
MAX_IDLE_CHECK_INTERVAL_S: Final = 30.0
MAX_REFUSAL_DELAY_S: Final = 1.0
MAX_DELAYED_REFUSALS: Final = 256
"""Maximum number of refused connections that stay open for a while, so that clients do not
reconnect at once.
"""

ListenOn = Callable[[Listener, Config], socket.socket]
"""Opens a socket that listens on a listener's address, for the loop's `create_server`. Raises
OSError.
"""


def listen_on_socket(listener: Listener, config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host or not listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not listener.host else 1)
        for option, size in (
            (socket.SO_SNDBUF, config(SOCKET_SEND_BUFFER_BYTES)),
            (socket.SO_RCVBUF, -1 if adapts_receive_buffers(config) else config(SOCKET_RECEIVE_BUFFER_BYTES)),
        ):
            if size != -1:  # accepted connections inherit it
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind((listener.host, listener.port))
        sock.listen(config(SOCKET_LISTEN_BACKLOG_SIZE))  # only this reserves the port
    except OSError:
        sock.close()
        raise
    return sock


class Server:
    """Serves a broker: other brokers from the beginning, clients once it is ready. One per broker,
    on the running loop.

    `listen_on`: replaced by tests without sockets. `busy_poll`: None where it is disabled or not
    affordable, and on a loop of virtual time. `sample_trace`: see `ConnectionServices`.
    """

    def __init__(
        self,
        broker: Broker,
        limits: ConnectionLimits | None = None,
        listen_on: ListenOn = listen_on_socket,
        busy_poll: BusyPoll | None = None,
        sample_trace: Callable[[bytearray, ConnectionState], RequestTrace | None] | None = None,
    ) -> None:
        self._broker = broker
        self._limits = limits or ConnectionLimits.from_config(broker.config)
        self._listen_on = listen_on
        self._loop = asyncio.get_running_loop()
        self.request_memory = MemoryPool(self._limits.all_requests_bytes)
        self.response_memory = MemoryPool(self._limits.all_responses_bytes)
        self.dispatcher = RequestDispatcher(broker)
        self._logins = ListenerLogins(broker, self._loop.time)
        broker.on_logins_removed = self._close_removed_logins
        self._services = ConnectionServices[Connection](
            self.dispatcher,
            ProduceTurn(broker, self.dispatcher.request_counts, self.dispatcher.request_times),
            GroupTurn(self._loop, self.dispatcher.request_times.clock),
            self._limits,
            self.request_memory,
            self.response_memory,
            partial(
                FrameReader,
                memoryview(bytearray(SCRATCH_BYTES)),
                self._limits.request_bytes,
                self.request_memory.try_allocate,
                SOCKET_REQUEST_MAX_BYTES.name,
            ),
            self._loop.time,
            self._logins.sasl_sessions,
            self._logins.principal_mappers,
            busy_poll,
            sample_trace,
            on_open=self._admit,
            on_close=self._remove,
            on_response_memory_exhausted=self._watch_slow_readers,
        )
        self.connections: dict[Connection, None] = {}  # in order of opening, so that a simulation can be replayed
        self._quotas = ConnectionQuotas(broker.config, broker.client_quotas, self._loop.time)
        self.bound_listeners: list[Listener] = []
        self._bound_sockets: list[tuple[str, socket.socket]] = []
        self.certificates = ListenerCertificates(broker)
        self._handshakes: dict[str, Handshakes] = {}  # of listeners with TLS
        self._delayed: set[Connection] = set()  # refused, and not closed yet
        self._asyncio_servers: list[asyncio.Server] = []
        self._release_task: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._slow_reader_timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None  # set while the server closes

    def bind(self) -> dict[str, Listener]:
        """Opens the sockets of every listener, so that a port in use is reported before anything
        else starts. Connections of clients wait in the backlogs until `serve` accepts them.

        Returns the advertised address of each listener, by name, with the host and port that were
        bound filled in. Raises ListenError.
        """
        config = self._broker.config
        advertised = {}
        for listener, address in zip(config.listeners, config.advertised_listeners, strict=True):
            if config.security_protocol(listener.name) in TLS_PROTOCOLS:
                self.certificates.load(listener)
            try:
                sock = self._listen_on(listener, config)
            except OSError as error:
                # The resolver has error numbers of its own, below 0.
                why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
                raise ListenError(f"cannot listen on {listener}: {why.lower()}") from error
            self._bound_sockets.append((listener.name, sock))
            port: int = sock.getsockname()[1]
            self.bound_listeners.append(listener._replace(port=port))
            host = address.host or socket.gethostname()
            advertised[listener.name] = Listener(listener.name, host, address.port or port)
        return advertised

    async def serve(self) -> None:
        """Accepts connections."""
        backlog = self._broker.config(SOCKET_LISTEN_BACKLOG_SIZE)
        while self._bound_sockets:
            name, sock = self._bound_sockets.pop(0)
            make_protocol: Callable[[], asyncio.BufferedProtocol] = partial(Connection, self._services, name)
            if name in self.certificates.contexts:
                self._handshakes[name] = Handshakes(
                    partial(self._admit_handshake, name), partial(self._quotas.remove, name)
                )
                make_protocol = partial(self._make_tls_transport, name, make_protocol)
            self._asyncio_servers.append(await self._loop.create_server(make_protocol, sock=sock, backlog=backlog))
        self._logins.start()
        self.certificates.start()
        self._close_idle_connections()
        self._release_task = self._loop.create_task(self._release_held_requests())

    def _make_tls_transport(self, listener: str, make_protocol: Callable[[], asyncio.BufferedProtocol]) -> TlsTransport:
        """A transport with the current certificates of the listener."""
        return TlsTransport(
            self.certificates.contexts[listener],
            self._handshakes[listener],
            make_protocol,
            accepts_plaintext=accepts_plaintext(self._broker.config, listener),
        )

    async def close(self) -> None:
        """Stops accepting, answers the requests in progress for at most DRAIN_S, and closes every
        connection.
        """
        for _, sock in self._bound_sockets:
            sock.close()
        for one in self._asyncio_servers:
            one.close()
        for timer in (self._idle_timer, self._slow_reader_timer, self._release_task):
            if timer is not None:
                timer.cancel()
        for handshakes in self._handshakes.values():
            handshakes.close()
        await self._logins.close()
        await self.certificates.close()
        for connection in tuple(self.connections):
            connection.finish()
        if self.connections:
            self._drained = self._loop.create_future()
            await asyncio.wait([self._drained], timeout=DRAIN_S)
        for connection in tuple(self.connections):
            connection.close("the broker is stopping")
        for one in self._asyncio_servers:
            await one.wait_closed()
        await self.dispatcher.close()

    async def _release_held_requests(self) -> None:
        await self._broker.started.wait()
        for connection in tuple(self.connections):
            connection.release_hold()

    # Admission: these limits can change while the broker runs

    @property
    def refused_connections(self) -> int:
        return self._quotas.refused

    @property
    def handshakes_in_progress(self) -> int:
        return sum(map(len, self._handshakes.values()))

    def _admit(self, connection: Connection) -> float | None:
        """Returns None if the connection is admitted, else the seconds after which it closes."""
        host, listener = connection.state.host, connection.state.listener
        if not self._make_room(listener, host):
            return 0.0
        wait_s: float | None = 0.0
        if listener not in self._handshakes:  # otherwise its handshake has waited
            if (refused_for_s := self._quotas.count_connection_of_host(host)) > 0:
                return self._delay_refusal(connection, refused_for_s)
            wait_s = self._quotas.count_connection(listener, host)
            if wait_s is None:
                return 0.0
        self.connections[connection] = None
        self._quotas.add(listener, host)
        if wait_s:
            connection.state.mute(wait_s)
        return None

    def _admit_handshake(self, listener: str, host: str) -> float | None:
        """Returns how many seconds a TLS connection has to wait; None if it is refused."""
        if not self._make_room(listener, host) or self._quotas.count_connection_of_host(host):
            return None
        wait_s = self._quotas.count_connection(listener, host)
        if wait_s is not None:
            self._quotas.add(listener, host)
        return wait_s

    def _make_room(self, listener: str, host: str) -> bool:
        """Closes a client's connection if another broker needs its place. Returns True if one more
        connection is allowed.
        """
        room = self._quotas.check_room(listener, host)
        if room is Room.FOR_BROKERS:
            others = [one for one in self.connections if one.state.listener != listener]
            if others:
                idlest = min(others, key=lambda it: it.active_at_s)
                idlest.close("max.connections is reached, and another broker connects", logging.WARNING)
        return room is not Room.EXHAUSTED

    def _delay_refusal(self, connection: Connection, wait_s: float) -> float:
        """Returns after how many seconds to close a refused connection: 0 if too many others wait
        to be closed.
        """
        if len(self._delayed) >= MAX_DELAYED_REFUSALS:
            return 0.0
        self._delayed.add(connection)
        return min(wait_s, MAX_REFUSAL_DELAY_S)

    def _remove(self, connection: Connection) -> None:
        if connection not in self.connections:
            self._delayed.discard(connection)
            return
        del self.connections[connection]
        for end in connection.state.on_closed.values():
            end()
        if not self.connections and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._quotas.remove(connection.state.listener, connection.state.host)

    def _close_removed_logins(self) -> None:
        """Closes the connections that logged in by a credential or token that is removed."""
        for connection in tuple(self.connections):
            session, listener = connection.state.sasl, connection.state.listener
            if session is not None and session.login is not None and self._logins.is_removed(listener, session.login):
                connection.close(f"the login of {session.principal} is removed", logging.INFO)

    # Slow and idle clients

    def _watch_slow_readers(self) -> None:
        """A fetch waits for memory: from now on, connections that read nothing are closed."""
        if self._slow_reader_timer is None:
            interval_s = self._limits.slow_reader_timeout_s / 4
            self._slow_reader_timer = self._loop.call_later(interval_s, self._close_slow_readers)

    def _close_slow_readers(self) -> None:
        self._slow_reader_timer = None
        timeout_s = self._limits.slow_reader_timeout_s
        for connection in [one for one in self.connections if one.unsent.bytes]:
            connection.recount_unsent()
            unsent = connection.unsent
            if unsent.bytes and self._loop.time() - unsent.stuck_since_s >= timeout_s:
                why = f"{unsent.bytes} bytes of responses unread for {timeout_s:.0f} s while other fetches wait"
                connection.close(why, logging.WARNING)
        if self.response_memory.has_waiters:
            self._watch_slow_readers()

    def _close_idle_connections(self) -> None:
        idle_s = self._limits.idle_s
        if idle_s <= 0:
            return
        oldest = self._loop.time() - idle_s
        for connection in [one for one in self.connections if one.is_idle and one.active_at_s < oldest]:
            connection.close(f"idle for {idle_s:.0f} s")
        interval_s = min(MAX_IDLE_CHECK_INTERVAL_S, idle_s / 4)
        self._idle_timer = self._loop.call_later(interval_s, self._close_idle_connections)
