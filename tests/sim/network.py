"""TCP between named hosts inside one loop: latency, lost packets, windows, resets, refusals.

What is modelled, because it matters to programs: bytes of one direction arrive in order or not at all; a link that loses
packets loses nothing for good, since the sender repeats them until they arrive (so both sides just hang, and what was sent
long ago may still come); a killed process's connections are closed by its operating system, those of a host without power are
not, until it is back and answers with resets; a port where nobody listens refuses; a writer notices a slow reader by windows
and watermarks. Segments are cut anywhere. What the two sides of a connection have of it is in `sockets`.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.sim.processes import NO_PROCESS, SimulatedLoop, current
from tests.sim.sockets import End, Listening, VirtualServer

CONNECT_WITHIN_S = 127.0  # Linux gives up after six repetitions
APART_S = 1e-7  # timers of one moment ring in no certain order
DIRECTOR = "director"  # the host of what belongs to no process

Way = tuple[str, str]
"""From one host to another."""
Which = Callable[[Way, bytes], bool]
"""Whether it is one of those pieces that programs write."""


@dataclass
class Link:
    """One direction between two hosts. `latency_s`: the least; each packet takes up to twice that. `slowed_s`: what each of those that slow it
    now wants it to be."""

    usual_s: float
    slowed_s: list[float] = field(default_factory=list)
    cuts: int = 0  # as many as there are now
    lost: deque[Callable[[], None]] = field(default_factory=deque)  # what the senders go on repeating, in order

    @property
    def latency_s(self) -> float:
        return max(self.slowed_s, default=self.usual_s)


@dataclass
class Host:
    name: str
    powered: bool = True
    ports: dict[int, Listening] = field(default_factory=dict)
    next_port: int = 32768
    ends: dict[End, None] = field(default_factory=dict)


class SimulatedNetwork:
    """One per loop; sets itself as the loop's network. `trace` hears of what happens, for people."""

    def __init__(self, loop: SimulatedLoop, random: Random, latency_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        self.loop = loop
        self.random = random
        self.hosts: dict[str, Host] = {}
        self.packets = 0
        self.digest = 0  # of every packet's time, way and size: two runs of one seed must agree
        self._links: dict[tuple[str, str], Link] = {}
        self._latency_s = latency_s
        self._repeated: list[tuple[Which, float]] = []
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

    def cut_link(self, source: str, target: str) -> None:
        """From now on nothing arrives in this direction."""
        self.link(source, target).cuts += 1

    def restore_link(self, source: str, target: str) -> None:
        link = self.link(source, target)
        link.cuts -= 1
        if not link.cuts:
            self._repeat(link, source, target)

    def isolate(self, name: str, others: Iterable[str]) -> None:
        """From now on nothing passes between this host and those, in either direction."""
        for other in others:
            if other != name:
                self.cut_link(name, other)
                self.cut_link(other, name)

    def rejoin(self, name: str, others: Iterable[str]) -> None:
        for other in others:
            if other != name:
                self.restore_link(name, other)
                self.restore_link(other, name)

    def slow(self, source: str, target: str, latency_s: float) -> None:
        """From now on each packet in this direction takes so long, or longer."""
        self.link(source, target).slowed_s.append(latency_s)

    def quicken(self, source: str, target: str, latency_s: float) -> None:
        """Ends one `slow`; of two at a time the other goes on."""
        self.link(source, target).slowed_s.remove(latency_s)

    @contextmanager
    def apart(self, ways: Sequence[Way]) -> Iterator[None]:
        """While the block runs nothing arrives in these directions."""
        for way in ways:
            self.cut_link(*way)
        yield
        for way in ways:
            self.restore_link(*way)

    @contextmanager
    def late(self, ways: Sequence[Way], latency_s: float) -> Iterator[None]:
        """While the block runs each packet in these directions takes so long, or longer."""
        for way in ways:
            self.slow(*way, latency_s)
        yield
        for way in ways:
            self.quicken(*way, latency_s)

    @contextmanager
    def repeated(self, which: Which, after_s: float) -> Iterator[None]:
        """While the block runs the packets of such pieces are lost, and repeated after so long. What follows in their streams waits for them; other
        connections overtake them."""
        rule = which, after_s
        self._repeated.append(rule)
        yield
        self._repeated.remove(rule)

    def delay_s(self, way: Way, piece: bytes) -> float:
        """How much later than others its packet will be there."""
        return max((after_s for which, after_s in self._repeated if which(way, piece)), default=0.0)

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

    def power_on(self, name: str) -> None:
        self.host(name).powered = True
        for (source, target), link in self._links.items():
            if target == name and not link.cuts:
                self._repeat(link, source, target)

    def _repeat(self, link: Link, source: str, target: str) -> None:
        """What was lost is repeated: after a while, and in its order."""
        if link.lost:
            self.loop.call_later(self.random.uniform(0.001, 0.4), self._again, link, target, context=NO_PROCESS)

    def _again(self, link: Link, target: str) -> None:
        while link.lost and not link.cuts and self.hosts[target].powered:
            link.lost.popleft()()

    # --- packets

    def carry(self, source: str, target: str, size: int, not_before: float, arrive: Callable[[], None]) -> float:
        """Brings a packet over; when it will be there. `not_before`: of the packet before it in its stream."""
        link = self.link(source, target)
        at = max(self.loop.time() + link.latency_s * (1 + self.random.random()), not_before + APART_S)
        self.packets += 1
        self.digest = hash((self.digest, at, size, self.host(source).next_port, self.host(target).next_port))
        self.loop.call_at(at, self._deliver, link, source, target, arrive, context=NO_PROCESS)
        return at

    def _deliver(self, link: Link, source: str, target: str, arrive: Callable[[], None]) -> None:
        # While something waits to be repeated, what follows it in its stream must not overtake it.
        if not (link.cuts or link.lost or not self.hosts[target].powered):
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

    def listen(self, host: str, port: int) -> Listening:
        """What binding and listening does: from now on connections are taken, and wait until somebody serves them. OSError."""
        process = current()
        ports = self.host(host).ports
        if port in ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listening = ports[port] = Listening(self, host, port, process)
        if process is not None:
            process.on_exit.append(listening.close)
        return listening

    def serve(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        sock: Listening | None,
    ) -> VirtualServer:
        if sock is None:
            assert host is not None
            assert port is not None
            sock = self.listen(host, port)
        sock.serve(factory)
        return VirtualServer(sock)


def _fail(waiter: "asyncio.Future[None]", reason: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(reason)


def _done(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
