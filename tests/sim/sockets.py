"""What programs have of a simulated network: listening sockets and connections, as asyncio's transports are."""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tests.sim.processes import NO_PROCESS, SimulatedProcess

if TYPE_CHECKING:
    from tests.sim.network import Host, SimulatedNetwork

WINDOW_BYTES = 256 << 10  # sent and not yet read by the other side
ACK_EVERY_BYTES = 32 << 10
CUT_SEGMENT_ONE_IN = 8  # how often a segment arrives in two pieces


class Listening:
    """Stands where a program has its listening socket."""

    def __init__(self, network: "SimulatedNetwork", host: str, port: int, process: SimulatedProcess | None) -> None:
        self.process = process
        self._network = network
        self._address = (host, port)
        self._factory: Callable[[], asyncio.BaseProtocol] | None = None
        self._waiting: list[End] = []
        self._context = process.context.copy() if process else NO_PROCESS

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        host, port = self._address
        ports = self._network.host(host).ports
        if ports.get(port) is self:
            del ports[port]
        for end in self._waiting:
            end.die()
        self._waiting.clear()

    def serve(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        waiting, self._waiting = self._waiting, []
        for end in waiting:
            self.came(end)

    def came(self, end: "End") -> None:
        if self._factory is None:
            self._waiting.append(end)
        else:
            self._network.loop.call_soon(self._accept, end, context=self._context)

    def _accept(self, end: "End") -> None:
        assert self._factory is not None
        if not end.gone:
            end.open(self._factory())


class VirtualServer(asyncio.AbstractServer):
    def __init__(self, listening: Listening) -> None:
        self.sockets = (listening,)

    def close(self) -> None:
        for listening in self.sockets:
            listening.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def start_serving(self) -> None:
        """It does from the beginning."""

    async def serve_forever(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def wait_closed(self) -> None:
        return None

    def is_serving(self) -> bool:
        return True


class End(asyncio.Transport):
    """One end of a connection, and the transport that the program there has of it."""

    def __init__(
        self,
        network: "SimulatedNetwork",
        host: "Host",
        process: SimulatedProcess | None,
        address: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": address, "peername": peer})
        self.address = address
        self.other: End | None = None
        self.sent_until = 0.0  # when the last packet sent will arrive
        self.gone = False  # the operating system here knows the connection no more
        self._network = network
        self._host = host
        self._way = host.name, peer[0]
        self._process = process
        self._context = process.context.copy() if process else NO_PROCESS
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._read_scheduled = False
        self._received: deque[bytes | None] = deque()  # None: the other side will send no more
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
            process.on_exit.append(self.die)

    # --- life

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self._look()

    def forget(self) -> None:
        """The operating system forgets the connection and tells nobody."""
        self.gone = True
        self._host.ends.pop(self, None)
        self._received.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._process is not None and self._process.alive and self.die in self._process.on_exit:
            self._process.on_exit.remove(self.die)

    def die(self) -> None:
        """The process is gone, or has closed its socket: what was handed to the operating system still goes out."""
        if self.gone:
            return
        unread = any(piece is not None for piece in self._received)
        self.forget()
        if self.other is None:
            return
        if unread:
            self._send(0, lambda other: other.reset())
        elif not self._eof_sent:
            self._eof_sent = True
            self._send(0, lambda other: other.arrived(None))

    def reset(self) -> None:
        """The other side's operating system says that there is no such connection."""
        if not self.gone:
            self.forget()
            self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _lose(self, reason: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            if self._protocol is not None:
                self._network.loop.call_soon(self._protocol.connection_lost, reason, context=self._context)

    def _send(self, size: int, act: "Callable[[End], None]") -> None:
        other = self.other
        assert other is not None
        self.sent_until = self._network.carry(
            self._host.name, other._host.name, size, self.sent_until, lambda: act(other)
        )

    # --- arriving

    def arrived(self, piece: bytes | None) -> None:
        if self.gone:
            if piece is not None:
                self._send(0, lambda other: other.reset())
            return
        self._received.append(piece)
        self._look()

    def _look(self) -> None:
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
                self._took(count)
            else:
                cast(asyncio.Protocol, self._protocol).data_received(piece)
                self._took(len(piece))

    def _took(self, count: int) -> None:
        self._unacknowledged += count
        if self._unacknowledged >= ACK_EVERY_BYTES and not self.gone:
            taken, self._unacknowledged = self._unacknowledged, 0
            self._send(0, lambda other: other.acknowledged(taken))

    def acknowledged(self, count: int) -> None:
        self._in_flight -= count
        if not self.gone:
            self._push()
            if self._protocol_paused and self._unsent_bytes <= self._low:
                self._network.loop.call_soon(self._resume_protocol, context=self._context)

    def _resume_protocol(self) -> None:
        if self._protocol_paused and self._unsent_bytes <= self._low and not self._lost:
            self._protocol_paused = False
            cast(asyncio.BaseProtocol, self._protocol).resume_writing()

    # --- reading, as programs ask for it

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._look()

    # --- writing

    def write(self, data: Any) -> None:
        if self._closing or self._eof_wanted or self.gone or not data:
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
            if len(piece) > 1 and self._network.random.randrange(CUT_SEGMENT_ONE_IN) == 0:
                room = min(room, self._network.random.randrange(1, len(piece)))
            if len(piece) > room:
                self._unsent.appendleft(piece[room:])
                piece = piece[:room]
            self._unsent_bytes -= len(piece)
            self._in_flight += len(piece)
            if late_s := self._network.delay_s(self._way, piece):
                self.sent_until = max(self.sent_until, self._network.loop.time() + late_s)
            self._send(len(piece), lambda other, piece=piece: other.arrived(piece))  # type: ignore[misc]
        if not self._unsent:
            if self._eof_wanted and not self._eof_sent:
                self._eof_sent = True
                self._send(0, lambda other: other.arrived(None))
            if self._closing and not self._lost:
                self._close_now(None)

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
        """When everything is written."""
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._close_now(None)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self._close_now(None)

    def _close_now(self, reason: Exception | None) -> None:
        self.die()
        self._lose(reason)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)
