"""TCP between named hosts inside one loop: latency, lost packets, windows, resets, refusals.

What is modelled, because it matters to programs: bytes of one direction arrive in order or not at all; a link that loses
packets loses nothing for good, since the sender repeats them until they arrive (so both sides just hang, and what was sent
long ago may still come); a killed process's connections are closed by its operating system, those of a host without power are
not, until it is back and answers with resets; a port where nobody listens refuses; a writer notices a slow reader by windows
and watermarks. Segments are cut anywhere.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from tests.sim.processes import NOBODY, Process, SimulatedLoop, current

WINDOW_BYTES = 256 << 10  # sent and not yet read by the other side
ACK_EVERY_BYTES = 32 << 10
CONNECT_WITHIN_S = 127.0  # Linux gives up after six repetitions
CUT_SEGMENT_ONE_IN = 8  # how often a segment arrives in two pieces
APART_S = 1e-7  # timers of one moment ring in no certain order
DIRECTOR = "director"  # the host of what belongs to no process


@dataclass
class Link:
    """One direction between two hosts. `latency_s`: the least; each packet takes up to twice that."""

    latency_s: float
    lossy: bool = False
    lost: deque[Callable[[], None]] = field(default_factory=deque)  # what the senders go on repeating, in order


@dataclass
class Host:
    name: str
    powered: bool = True
    ports: "dict[int, Listening]" = field(default_factory=dict)
    next_port: int = 32768
    ends: "dict[End, None]" = field(default_factory=dict)


class Network:
    """One per loop; sets itself as the loop's network. `trace` hears of what happens, for people."""

    def __init__(self, loop: SimulatedLoop, random: Random, latency_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        self.loop = loop
        self.random = random
        self.hosts: dict[str, Host] = {}
        self.packets = 0
        self.digest = 0  # of every packet's time, way and size: two runs of one seed must agree
        self._links: dict[tuple[str, str], Link] = {}
        self._latency_s = latency_s
        loop.network = self

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            self.hosts[name] = Host(name)
        return self.hosts[name]

    def link(self, source: str, target: str) -> Link:
        if (source, target) not in self._links:
            self._links[source, target] = Link(self.random.uniform(*self._latency_s))
        return self._links[source, target]

    # --- faults

    def cut(self, source: str, target: str) -> None:
        """From now on nothing arrives in this direction."""
        self.link(source, target).lossy = True

    def mend(self, source: str, target: str) -> None:
        link = self.link(source, target)
        link.lossy = False
        self._repeat(link, source, target)

    def mend_all(self) -> None:
        for (source, target), link in self._links.items():
            if link.lossy:
                self.mend(source, target)

    def lose_power(self, name: str) -> None:
        """Connections end without a word to anybody."""
        host = self.host(name)
        host.powered = False
        host.ports.clear()
        for end in tuple(host.ends):
            end.forget()
        for (source, _), link in self._links.items():
            if source == name:
                link.lost.clear()  # nobody repeats it any more

    def power_up(self, name: str) -> None:
        self.host(name).powered = True
        for (source, target), link in self._links.items():
            if target == name and not link.lossy:
                self._repeat(link, source, target)

    def _repeat(self, link: Link, source: str, target: str) -> None:
        """What was lost is repeated: after a while, and in its order."""
        if link.lost:
            self.loop.call_later(self.random.uniform(0.001, 0.4), self._again, link, target, context=NOBODY)

    def _again(self, link: Link, target: str) -> None:
        while link.lost and not link.lossy and self.hosts[target].powered:
            link.lost.popleft()()

    # --- packets

    def carry(self, source: str, target: str, size: int, not_before: float, arrive: Callable[[], None]) -> float:
        """Brings a packet over; when it will be there. `not_before`: of the packet before it in its stream."""
        link = self.link(source, target)
        at = max(self.loop.time() + link.latency_s * (1 + self.random.random()), not_before + APART_S)
        self.packets += 1
        self.digest = hash((self.digest, at, size, self.host(source).next_port, self.host(target).next_port))
        self.loop.call_at(at, self._deliver, link, source, target, arrive, context=NOBODY)
        return at

    def _deliver(self, link: Link, source: str, target: str, arrive: Callable[[], None]) -> None:
        # While something waits to be repeated, what follows it in its stream must not overtake it.
        if not (link.lossy or link.lost or not self.hosts[target].powered):
            arrive()
        elif self.hosts[source].powered:
            link.lost.append(arrive)

    # --- what the loop calls

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        """As `loop.create_connection`. ConnectionRefusedError, TimeoutError, ConnectionResetError."""
        process = current()
        source = self.host(process.host if process else DIRECTOR)
        target = self.host(host)
        source.next_port += 1
        end = End(self, source, process, (source.name, source.next_port), (host, port))
        waiter: asyncio.Future[None] = self.loop.create_future()

        def knock() -> None:
            if end.gone:
                return
            listening = target.ports.get(port)
            if listening is None:
                refused = ConnectionRefusedError(
                    errno.ECONNREFUSED, f"Connect call failed ({host!r}, {port}): {os.strerror(errno.ECONNREFUSED)}"
                )
                self.carry(target.name, source.name, 0, 0.0, lambda: _fail(waiter, refused))
                return
            theirs = End(self, target, listening.process, (host, port), (source.name, end.address[1]))
            end.other, theirs.other = theirs, end
            listening.came(theirs)
            theirs.sent_until = self.carry(target.name, source.name, 0, 0.0, lambda: _done(waiter))

        end.sent_until = self.carry(source.name, target.name, 0, 0.0, knock)
        timer = self.loop.call_later(
            CONNECT_WITHIN_S, _fail, waiter, TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        )
        try:
            await waiter
        except BaseException:
            end.forget()
            raise
        finally:
            timer.cancel()
        protocol = factory()
        end.open(protocol)
        return end, protocol

    def take_port(self, host: str, port: int) -> "Listening":
        """What binding and listening does: from now on connections are taken, and wait until somebody serves them. OSError."""
        process = current()
        ports = self.host(host).ports
        if port in ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listening = ports[port] = Listening(self, host, port, process)
        if process is not None:
            process.at_death.append(listening.close)
        return listening

    def serve(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        sock: "Listening | None",
    ) -> "VirtualServer":
        if sock is None:
            assert host is not None
            assert port is not None
            sock = self.take_port(host, port)
        sock.serve(factory)
        return VirtualServer(sock)


class Listening:
    """Stands where a program has its listening socket."""

    def __init__(self, network: Network, host: str, port: int, process: Process | None) -> None:
        self.process = process
        self._network = network
        self._address = (host, port)
        self._factory: Callable[[], asyncio.BaseProtocol] | None = None
        self._waiting: list[End] = []
        self._context = process.context.copy() if process else NOBODY

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
        self, network: Network, host: Host, process: Process | None, address: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": address, "peername": peer})
        self.address = address
        self.other: End | None = None
        self.sent_until = 0.0  # when the last packet sent will arrive
        self.gone = False  # the operating system here knows the connection no more
        self._network = network
        self._host = host
        self._process = process
        self._context = process.context.copy() if process else NOBODY
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
            process.at_death.append(self.die)

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
        if self._process is not None and self._process.alive and self.die in self._process.at_death:
            self._process.at_death.remove(self.die)

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


def _fail(waiter: "asyncio.Future[None]", reason: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(reason)


def _done(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
