"""TCP between named hosts inside one loop: latency, lost packets, windows, resets, refusals.

It models what programs can observe. Bytes of one direction arrive in order or not at all. A link
that drops packets loses nothing permanently, because the sender retransmits them; both sides wait,
and old data may still arrive late. Connections of a killed process are closed by its operating
system. Those of a host without power stay open until it is back and responds with resets. A port
without a listener refuses connections. A slow reader limits its writer by the window and
watermarks. Segments are split at random positions. `sockets.py` has the two ends of a connection.
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
from tests.sim.sockets import Host, ListeningSocket, SimulatedServer, SimulatedTransport

CONNECT_TIMEOUT_S = 127.0  # Linux gives up after six retransmissions
MIN_PACKET_GAP_S = 1e-7  # timers of the same time have no guaranteed order
DRIVER = "driver"  # the host of clients that belong to no process

Direction = tuple[str, str]
"""A pair of hosts: sender and receiver."""
PacketFilter = Callable[[Direction, bytes], bool]
"""Selects segments by direction and content."""


@dataclass
class Link:
    """One direction between two hosts.

    Each packet takes `latency_s` to twice that. `slowed_s` has one latency for each fault that
    slows the link now.
    """

    normal_s: float
    slowed_s: list[float] = field(default_factory=list)
    cuts: int = 0  # number of faults that cut the link now
    dropped: deque[Callable[[], None]] = field(default_factory=deque)  # what senders retransmit, in order

    @property
    def latency_s(self) -> float:
        return max(self.slowed_s, default=self.normal_s)


class SimulatedNetwork:
    """One per loop; sets itself as the loop's network."""

    def __init__(self, loop: SimulatedLoop, random: Random, latency_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        self.loop = loop
        self.random = random
        self.hosts: dict[str, Host] = {}
        self.packets = 0
        self.digest = 0  # of every packet's time, ports and size: equal in two runs of one seed
        self._links: dict[tuple[str, str], Link] = {}
        self._latency_s = latency_s
        self._delay_rules: list[tuple[PacketFilter, float]] = []
        self._stall_rules: list[tuple[PacketFilter, list[SimulatedTransport]]] = []
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
        """Drops all packets in this direction until `restore_link`."""
        self.link(source, target).cuts += 1

    def restore_link(self, source: str, target: str) -> None:
        link = self.link(source, target)
        link.cuts -= 1
        if not link.cuts:
            self._schedule_retransmission(link, source, target)

    def isolate_host(self, name: str, others: Iterable[str]) -> None:
        """Drops all packets between this host and the others, in both directions, until
        `rejoin_host`.
        """
        for other in others:
            if other != name:
                self.cut_link(name, other)
                self.cut_link(other, name)

    def rejoin_host(self, name: str, others: Iterable[str]) -> None:
        for other in others:
            if other != name:
                self.restore_link(name, other)
                self.restore_link(other, name)

    def slow_link(self, source: str, target: str, latency_s: float) -> None:
        """Gives packets in this direction at least this latency, until `restore_latency`."""
        self.link(source, target).slowed_s.append(latency_s)

    def restore_latency(self, source: str, target: str, latency_s: float) -> None:
        """Ends one `slow_link`; another one of the same link stays in effect."""
        self.link(source, target).slowed_s.remove(latency_s)

    @contextmanager
    def links_cut(self, directions: Sequence[Direction]) -> Iterator[None]:
        """Drops all packets in these directions inside the block."""
        for direction in directions:
            self.cut_link(*direction)
        try:
            yield
        finally:
            for direction in directions:
                self.restore_link(*direction)

    @contextmanager
    def links_slowed(self, directions: Sequence[Direction], latency_s: float) -> Iterator[None]:
        """Gives packets in these directions at least this latency inside the block."""
        for direction in directions:
            self.slow_link(*direction, latency_s)
        try:
            yield
        finally:
            for direction in directions:
                self.restore_latency(*direction, latency_s)

    @contextmanager
    def packets_delayed(self, which: PacketFilter, after_s: float) -> Iterator[None]:
        """Drops the packets of selected segments inside the block and retransmits them after
        `after_s`.

        Later data of the same connections waits for them; other connections overtake them.
        """
        rule = which, after_s
        self._delay_rules.append(rule)
        try:
            yield
        finally:
            self._delay_rules.remove(rule)

    def extra_delay_s(self, direction: Direction, piece: bytes) -> float:
        """Delay of a segment's packet by the rules of `packets_delayed`."""
        return max((after_s for which, after_s in self._delay_rules if which(direction, piece)), default=0.0)

    @contextmanager
    def connections_stalled(self, which: PacketFilter) -> Iterator[list[SimulatedTransport]]:
        """Stalls a connection with the first selected segment that it sends inside the block: this
        segment and all later data of the sender arrive after the block, unless the sender's host
        loses power. Yields the senders' ends, which are added as they are stalled.
        """
        stalled: list[SimulatedTransport] = []
        rule = which, stalled
        self._stall_rules.append(rule)
        try:
            yield stalled
        finally:
            self._stall_rules.remove(rule)
            for end in stalled:
                end.end_stall()

    def stall_if_selected(self, end: SimulatedTransport, direction: Direction, piece: bytes) -> None:
        """Applies the rules of `connections_stalled` to a segment that is about to be sent."""
        for which, stalled in self._stall_rules:
            if end.stalled is None and which(direction, piece):
                end.stalled = []
                stalled.append(end)

    def lose_power(self, name: str) -> None:
        """Discards the host's connections without sending anything."""
        host = self.host(name)
        host.powered = False
        host.ports.clear()
        for end in tuple(host.ends):
            end.discard()
        for (source, _), link in self._links.items():
            if source == name:
                link.dropped.clear()  # the sender has no power
        for end in (end for _, stalled in self._stall_rules for end in stalled if end.address[0] == name):
            end.stalled = []

    def power_on(self, name: str) -> None:
        self.host(name).powered = True
        for (source, target), link in self._links.items():
            if target == name and not link.cuts:
                self._schedule_retransmission(link, source, target)

    def _schedule_retransmission(self, link: Link, source: str, target: str) -> None:
        """Schedules the retransmission of dropped packets, in their order."""
        if link.dropped:
            self.loop.call_later(self.random.uniform(0.001, 0.4), self._retransmit, link, target, context=NO_PROCESS)

    def _retransmit(self, link: Link, target: str) -> None:
        while link.dropped and not link.cuts and self.hosts[target].powered:
            link.dropped.popleft()()

    # --- packets

    def send_packet(self, source: str, target: str, size: int, not_before: float, arrive: Callable[[], None]) -> float:
        """Sends a packet; returns its time of arrival, which is after `not_before`, that of the
        previous packet.
        """
        link = self.link(source, target)
        at = max(self.loop.time() + link.latency_s * (1 + self.random.random()), not_before + MIN_PACKET_GAP_S)
        self.packets += 1
        self.digest = hash((self.digest, at, size, self.host(source).next_port, self.host(target).next_port))
        self.loop.call_at(at, self._deliver, link, source, target, arrive, context=NO_PROCESS)
        return at

    def _deliver(self, link: Link, source: str, target: str, arrive: Callable[[], None]) -> None:
        # Later data of a stream must not overtake packets that wait for retransmission.
        if not (link.cuts or link.dropped or not self.hosts[target].powered):
            arrive()
        elif self.hosts[source].powered:
            link.dropped.append(arrive)

    # --- called by the loop

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any:
        """Like `loop.create_connection`. Raises ConnectionRefusedError or TimeoutError."""
        process = current()
        source = self.host(process.host if process else DRIVER)
        target = self.host(host)
        source.next_port += 1
        end = SimulatedTransport(self, source, process, (source.name, source.next_port), (host, port))
        waiter: asyncio.Future[None] = self.loop.create_future()

        def arrive_syn() -> None:
            if end.is_gone:
                return
            listening = target.ports.get(port)
            if listening is None:
                refused = ConnectionRefusedError(
                    errno.ECONNREFUSED, f"Connect call failed ({host!r}, {port}): {os.strerror(errno.ECONNREFUSED)}"
                )
                self.send_packet(target.name, source.name, 0, 0.0, lambda: _fail(waiter, refused))
                return
            theirs = SimulatedTransport(self, target, listening.process, (host, port), (source.name, end.address[1]))
            end.peer, theirs.peer = theirs, end
            listening.accept(theirs)
            theirs.sent_until = self.send_packet(target.name, source.name, 0, 0.0, lambda: _succeed(waiter))

        end.sent_until = self.send_packet(source.name, target.name, 0, 0.0, arrive_syn)
        timer = self.loop.call_later(
            CONNECT_TIMEOUT_S, _fail, waiter, TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        )
        try:
            await waiter
        except BaseException:
            end.discard()
            raise
        finally:
            timer.cancel()
        protocol = factory()
        end.open_protocol(protocol)
        return end, protocol

    def listen(self, host: str, port: int) -> ListeningSocket:
        """Binds and listens: connections are accepted from now on and wait until a program serves
        them. Raises OSError.
        """
        process = current()
        ports = self.host(host).ports
        if port in ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listening = ports[port] = ListeningSocket(self, host, port, process)
        if process is not None:
            process.on_exit.append(listening.close)
        return listening

    def serve(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | None,
        port: int | None,
        *,
        sock: ListeningSocket | None,
    ) -> SimulatedServer:
        if sock is None:
            assert host is not None
            assert port is not None
            sock = self.listen(host, port)
        sock.serve(factory)
        return SimulatedServer(sock)


def _fail(waiter: "asyncio.Future[None]", reason: Exception) -> None:
    if not waiter.done():
        waiter.set_exception(reason)


def _succeed(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
