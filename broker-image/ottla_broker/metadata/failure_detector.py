"""Detects that another broker's process has ended. Each broker has one idle probe connection to
every other unfenced broker, which the operating system closes when the process ends.

A broken probe alone proves nothing (a network device may have dropped it). But when a new
connection is refused at once, nobody listens there any more: the broker has *failed*, and the
controller fences it without waiting for its session to expire. Meanwhile every broker makes clients
that ask for leaders wait a moment, instead of sending them to the failed one. Anything else is left
to the session. A killed leader stalls a producer for 0.11 s in the median (bench line
`killed-p50`) instead of a whole session, `broker.session.timeout.ms`.

A killed process closes its sockets one after the other, for milliseconds. In that time a client may
ask another broker for leaders, although that broker's probe connection is not closed yet. So a
broker also *probes* before it names leaders: it sends a request that a live process answers. For
the same reason, only the first response on a new connection proves that the process lives: the port
of a killed process accepts connections until it is closed.
"""

import asyncio
import errno
import logging
import re
import struct
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, cast

from ottla_broker.metadata.image import BrokerRegistration, MetadataImage
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder

logger = logging.getLogger(__name__)

RECONNECT_PAUSE_S: Final = 1.0  # before a broker that could not be reached is tried again
PROBE_TIMEOUT_S: Final = 0.1  # a busy broker takes longer now and then
RESOLVE_TIMEOUT_S: Final = 0.5
SUSPECT_EXPIRY_S: Final = 1.0  # how long a suspected broker may make clients wait

# ApiVersions in version 0, which every broker answers at any time.
PROBE_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 0, -1)

BrokerIncarnation = tuple[int, int]  # a broker and its epoch


class FailedBroker(NamedTuple):
    """A broker whose process has ended, the epoch with which it was registered, and how that was
    detected.
    """

    broker: int
    epoch: int
    reason: str


class FailureDetector:
    """`on_broker_failed`: callback that is set while this broker, `me`, is the active controller.
    `listener`: the name of the inter-broker listener.
    """

    def __init__(
        self, me: int, image: MetadataImage, listener: str, channels: ChannelBuilder = UNSECURED_CHANNELS
    ) -> None:
        self._me = me
        self._image = image
        self._listener = listener
        self._channels = channels
        self._watched: dict[BrokerIncarnation, asyncio.Task[None]] = {}
        self._probes: dict[BrokerIncarnation, PeerProbe] = {}
        # Brokers that have not answered since their probe connection broke → time of that break.
        self._suspects: dict[BrokerIncarnation, float] = {}
        self._failed: dict[BrokerIncarnation, str] = {}
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.on_broker_failed: Callable[[FailedBroker], None] | None = None

    def update_peers(self) -> None:
        """Called whenever a broker changes in the image."""
        wanted = {
            (broker.id, broker.epoch): broker for broker in self._image.unfenced_brokers() if broker.id != self._me
        }
        for key in [key for key in self._watched if key not in wanted]:
            self._watched.pop(key).cancel()
            self._failed.pop(key, None)
            self._clear_suspect(key)
        for key, broker in wanted.items():
            if key not in self._watched:
                self._watched[key] = asyncio.get_running_loop().create_task(self._watch(key, broker))

    def failed_brokers(self) -> list[FailedBroker]:
        """Failed brokers that are not fenced yet."""
        return [FailedBroker(*key, reason) for key, reason in self._failed.items()]

    @property
    def has_suspects(self) -> bool:
        """True if a broker seems to have failed, so that the image may be about to change."""
        if not self._suspects:
            return False
        since = asyncio.get_running_loop().time() - SUSPECT_EXPIRY_S
        return any(suspected_s > since for suspected_s in self._suspects.values())

    async def wait_until_confirmed(self, brokers: Collection[int]) -> None:
        """Called before clients are redirected to these brokers. Waits until each has answered a
        probe or its connection has broken, up to PROBE_TIMEOUT_S. If any broker is suspected then,
        waits until every suspect has answered or is fenced, up to RESOLVE_TIMEOUT_S.
        """
        await self.probe_brokers(brokers, PROBE_TIMEOUT_S)
        if self.has_suspects:
            await self.wait_until_resolved(RESOLVE_TIMEOUT_S)

    async def probe_brokers(self, brokers: Collection[int], within_s: float) -> None:
        """Returns when each of these has answered a probe, or its connection has broken, or the
        time is over.
        """
        answers = [probe.send_probe() for (broker, _), probe in self._probes.items() if broker in brokers]
        if answers:
            await asyncio.wait(answers, timeout=within_s)

    async def wait_until_resolved(self, within_s: float) -> None:
        """Returns when every suspected broker is fenced or has answered, or the time is over.
        Called while there are suspects: without any it waits until the time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            async with asyncio.timeout(within_s):
                await waiter
        except TimeoutError:
            return
        finally:
            del self._waiting[waiter]

    async def close(self) -> None:
        tasks = list(self._watched.values())
        self._watched.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, key: BrokerIncarnation, broker: BrokerRegistration) -> None:
        """Keeps the probe connection to one broker and detects that its process has ended. Runs
        until cancelled.
        """
        loop = asyncio.get_running_loop()
        at = broker.endpoints.get(self._listener) or next(iter(broker.endpoints.values()))
        answered = False
        while True:
            try:
                probe = await self._channels.open_probe(PeerProbe, at.host, at.port)
            except OSError as reason:
                if answered and is_connection_refused(reason):
                    self._on_failed(key, f"its port {at.host}:{at.port} refuses connections")
                answered = False
                await asyncio.sleep(RECONNECT_PAUSE_S)
                continue
            try:
                await probe.send_probe()
                answered = answered or probe.answered
                if not probe.ended.done():
                    self._probes[key] = probe
                    self._failed.pop(key, None)
                    self._clear_suspect(key)
                await probe.ended
            finally:
                self._probes.pop(key, None)
                probe.close()
            if answered:
                self._suspects[key] = loop.time()

    def _on_failed(self, key: BrokerIncarnation, reason: str) -> None:
        self._failed[key] = reason
        if self.on_broker_failed is not None:
            self.on_broker_failed(FailedBroker(*key, reason))

    def _clear_suspect(self, key: BrokerIncarnation) -> None:
        if self._suspects.pop(key, None) is not None and not self._suspects:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)


def is_connection_refused(reason: OSError) -> bool:
    """True if no process listens on the port at any address of the host."""
    if isinstance(reason, ConnectionRefusedError):
        return True
    numbers = re.findall(r"\[Errno (\d+)\]", str(reason)) if reason.errno is None else []
    return bool(numbers) and all(int(number) == errno.ECONNREFUSED for number in numbers)


class PeerProbe(asyncio.Protocol):
    """The probe connection to one broker. `ended` is done when the connection is closed by either
    side. `answered`: whether the broker has answered any request.
    """

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answered = False
        self._received = bytearray()
        self._awaited: asyncio.Future[None] | None = None  # answer to the request that was sent
        self._next: asyncio.Future[None] | None = None  # to the next request, which all callers share meanwhile

    def send_probe(self) -> asyncio.Future[None]:
        """Sends a request. The future is done when the other end has answered it, or the connection
        is closed.
        """
        if self.ended.done():
            return self.ended
        answer = self._next = self._next or asyncio.get_running_loop().create_future()
        if self._awaited is None:
            self._send()
        return answer

    def _send(self) -> None:
        self._awaited, self._next = self._next, None
        if self._awaited is not None:
            self._transport.write(PROBE_REQUEST)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4 and len(received) >= (whole := 4 + int.from_bytes(received[:4])):
            del received[:whole]
            self.answered = True
            _complete(self._awaited)
            self._send()

    def connection_lost(self, reason: Exception | None) -> None:
        for future in (self.ended, self._awaited, self._next):
            _complete(future)

    def close(self) -> None:
        self._transport.abort()


def _complete(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
