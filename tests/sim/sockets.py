"""Listening sockets and the asyncio transports of simulated connections."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, cast

from tests.sim.processes import NO_PROCESS, SimulatedLoop, SimulatedProcess

WINDOW_BYTES = 256 << 10  # sent and not yet read by the peer
ACK_EVERY_BYTES = 32 << 10
SPLIT_SEGMENT_ONE_IN = 8  # segments, of which one arrives in two pieces, on average

Packet = tuple[int, Callable[["SimulatedTransport"], None]]
"""A size, and what happens at the peer on arrival."""


class Network(Protocol):
    """The part of `SimulatedNetwork` that sockets use."""

    loop: SimulatedLoop
    random: Random

    def host(self, name: str) -> "Host": ...
    def send_packet(
        self, source: str, target: str, size: int, not_before: float, arrive: Callable[[], None]
    ) -> float: ...
    def extra_delay_s(self, direction: tuple[str, str], piece: bytes) -> float: ...
    def stall_if_selected(self, end: "SimulatedTransport", direction: tuple[str, str], piece: bytes) -> None: ...


@dataclass
class Host:
    """A machine: its listening sockets by port, and its ends of connections."""

    name: str
    powered: bool = True
    ports: dict[int, "ListeningSocket"] = field(default_factory=dict)
    next_port: int = 32768
    ends: dict["SimulatedTransport", None] = field(default_factory=dict)


class ListeningSocket:
    """A program's listening socket."""

    def __init__(self, network: Network, host: str, port: int, process: SimulatedProcess | None) -> None:
        self.process = process
        self._network = network
        self._address = (host, port)
        self._factory: Callable[[], asyncio.BaseProtocol] | None = None
        self._waiting: list[SimulatedTransport] = []
        self._context = process.context.copy() if process else NO_PROCESS

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        host, port = self._address
        ports = self._network.host(host).ports
        if ports.get(port) is self:
            del ports[port]
        for end in self._waiting:
            end.close_by_os()
        self._waiting.clear()

    def serve(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        waiting, self._waiting = self._waiting, []
        for end in waiting:
            self.accept(end)

    def accept(self, end: "SimulatedTransport") -> None:
        if self._factory is None:
            self._waiting.append(end)
        else:
            self._network.loop.call_soon(self._open, end, context=self._context)

    def _open(self, end: "SimulatedTransport") -> None:
        assert self._factory is not None
        if not end.is_gone:
            end.open_protocol(self._factory())


class SimulatedServer(asyncio.AbstractServer):
    def __init__(self, listening: ListeningSocket) -> None:
        self.sockets = (listening,)

    def close(self) -> None:
        for listening in self.sockets:
            listening.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def start_serving(self) -> None:
        """Does nothing: the server listens from the beginning."""

    async def serve_forever(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def wait_closed(self) -> None:
        return None

    def is_serving(self) -> bool:
        return True


class SimulatedTransport(asyncio.Transport):
    """One end of a connection, and the transport of the program there."""

    def __init__(
        self,
        network: Network,
        host: Host,
        process: SimulatedProcess | None,
        address: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": address, "peername": peer})
        self.address = address
        self.peer: SimulatedTransport | None = None
        self.sent_until = 0.0  # when the last packet sent will arrive
        self.is_gone = False  # the operating system has forgotten the connection
        self.stalled: list[Packet] | None = None  # what waits while the connection is stalled
        self._network = network
        self._host = host
        self._direction = host.name, peer[0]
        self._process = process
        self._context = process.context.copy() if process else NO_PROCESS
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._read_scheduled = False
        self._received: deque[bytes | None] = deque()  # None: end of stream
        self._unacknowledged = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._in_flight = 0
        self._eof_wanted = False
        self._eof_sent = False
        self._high, self._low = 64 << 10, 16 << 10
        self._protocol_paused = False
        host.ends[self] = None
        if process is not None:
            process.on_exit.append(self.close_by_os)

    # --- opening and closing by the operating system

    def open_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._schedule_read()

    def discard(self) -> None:
        """Discards the connection without sending anything to the peer."""
        self.is_gone = True
        self._host.ends.pop(self, None)
        self._received.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._process is not None and self._process.alive and self.close_by_os in self._process.on_exit:
            self._process.on_exit.remove(self.close_by_os)

    def close_by_os(self) -> None:
        """Closes, because the process has exited or closed its socket. What was sent before still
        arrives; what the window has held back is lost. Unread data makes it a reset.
        """
        if self.is_gone:
            return
        unread = any(piece is not None for piece in self._received)
        self.discard()
        if self.peer is None:
            return
        if unread:
            self._send(0, lambda peer: peer.receive_reset())
        elif not self._eof_sent:
            self._eof_sent = True
            self._send(0, lambda peer: peer.receive(None))

    def receive_reset(self) -> None:
        """Handles a reset: the peer's operating system does not know the connection."""
        if not self.is_gone:
            self.discard()
            self._lose_connection(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _lose_connection(self, reason: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            if self._protocol is not None:
                self._network.loop.call_soon(self._protocol.connection_lost, reason, context=self._context)

    def end_stall(self) -> None:
        """Sends what has waited."""
        waiting, self.stalled = self.stalled or (), None
        for size, act in waiting:
            self._send(size, act)

    def _send(self, size: int, act: "Callable[[SimulatedTransport], None]") -> None:
        if self.stalled is not None:
            self.stalled.append((size, act))
            return
        peer = self.peer
        assert peer is not None
        self.sent_until = self._network.send_packet(
            self._host.name, peer._host.name, size, self.sent_until, lambda: act(peer)
        )

    # --- receiving

    def receive(self, piece: bytes | None) -> None:
        if self.is_gone:
            if piece is not None:
                self._send(0, lambda peer: peer.receive_reset())
            return
        self._received.append(piece)
        self._schedule_read()

    def _schedule_read(self) -> None:
        if self._protocol is not None and self._received and not self._reading_paused and not self._read_scheduled:
            self._read_scheduled = True
            self._network.loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._read_scheduled = False
        while self._received and not self._reading_paused and not self._closing:
            piece = self._received.popleft()
            if piece is None:
                if not cast(asyncio.Protocol, self._protocol).eof_received():
                    self.close()
            elif isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(-1))
                count = min(len(piece), len(buffer))
                buffer[:count] = piece[:count]
                if count < len(piece):
                    self._received.appendleft(piece[count:])
                self._protocol.buffer_updated(count)
                self._consumed(count)
            else:
                cast(asyncio.Protocol, self._protocol).data_received(piece)
                self._consumed(len(piece))

    def _consumed(self, count: int) -> None:
        self._unacknowledged += count
        if self._unacknowledged >= ACK_EVERY_BYTES and not self.is_gone:
            taken, self._unacknowledged = self._unacknowledged, 0
            self._send(0, lambda peer: peer.receive_ack(taken))

    def receive_ack(self, count: int) -> None:
        self._in_flight -= count
        if not self.is_gone:
            self._push()
            if self._protocol_paused and self._unsent_bytes <= self._low:
                self._network.loop.call_soon(self._resume_protocol, context=self._context)

    def _resume_protocol(self) -> None:
        if self._protocol_paused and self._unsent_bytes <= self._low and not self._lost:
            self._protocol_paused = False
            cast(asyncio.BaseProtocol, self._protocol).resume_writing()

    # --- reading, for the program

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._schedule_read()

    # --- writing

    def write(self, data: Any) -> None:
        if self._closing or self._eof_wanted or self.is_gone or not data:
            return
        piece = bytes(data)
        self._unsent.append(piece)
        self._unsent_bytes += len(piece)
        self._push()
        if self._unsent_bytes > self._high and not self._protocol_paused:
            self._protocol_paused = True
            cast(asyncio.BaseProtocol, self._protocol).pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _push(self) -> None:
        while self._unsent and self._in_flight < WINDOW_BYTES:
            piece = self._unsent.popleft()
            room = WINDOW_BYTES - self._in_flight
            if len(piece) > 1 and self._network.random.randrange(SPLIT_SEGMENT_ONE_IN) == 0:
                room = min(room, self._network.random.randrange(1, len(piece)))
            if len(piece) > room:
                self._unsent.appendleft(piece[room:])
                piece = piece[:room]
            self._unsent_bytes -= len(piece)
            self._in_flight += len(piece)
            if late_s := self._network.extra_delay_s(self._direction, piece):
                self.sent_until = max(self.sent_until, self._network.loop.time() + late_s)
            self._network.stall_if_selected(self, self._direction, piece)
            self._send(len(piece), lambda peer, piece=piece: peer.receive(piece))  # type: ignore[misc]
        if not self._unsent:
            if self._eof_wanted and not self._eof_sent:
                self._eof_sent = True
                self._send(0, lambda peer: peer.receive(None))
            if self._closing and not self._lost:
                self._close_immediately(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._eof_wanted = True
        self._push()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else (64 << 10 if low is None else 4 * low)
        self._low = low if low is not None else self._high // 4

    # --- closing

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Closes when everything is written."""
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._close_immediately(None)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self._close_immediately(None)

    def _close_immediately(self, reason: Exception | None) -> None:
        self.close_by_os()
        self._lose_connection(reason)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)
