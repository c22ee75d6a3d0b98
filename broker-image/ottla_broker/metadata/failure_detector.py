"""Pulses: one idle connection from each broker to each other that is unfenced, which breaks when that broker's process ends.

A broken pulse alone says nothing (a machine between may have forgotten it); but when a new one is refused at once, nobody listens there any more:
the broker is *gone*, and need not be silent for a whole session before others lead. Whoever is the controller then fences it, and all brokers
can make clients who ask where things are wait the moment until that has happened, instead of sending them to the dead. Whatever else happens to a
pulse is left to the session.

A client whose connection to a dying broker broke may ask another one before that one's pulse breaks: a process that is killed closes its sockets one after
the other, for milliseconds. Therefore a pulse can also be *felt*: something is sent over it and answered, by a process that lives. For the same reason a new
pulse counts from its first answer only: the port of a dying process takes connections to its last moment.
"""

import asyncio
import errno
import logging
import re
import struct
from collections.abc import Callable, Collection, Iterator
from typing import Final, cast

from ottla_broker.metadata.image import BrokerRegistration, MetadataImage

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0  # until a broker is tried again that could not be reached
FELT_WITHIN_S: Final = 0.1  # a broker that lives and is busy takes longer now and then
SURE_WITHIN_S: Final = 0.5
DOUBT_S: Final = 1.0  # how long a broker that seems to be gone may make clients wait

PROBE_REQUEST: Final = struct.pack(
    ">ihhih", 10, 18, 0, 0, -1
)  # ApiVersions in version 0, which is answered by every broker at any time

Key = tuple[int, int]  # a broker and its epoch
Gone = Callable[[int, int, str], None]


class FailureDetector:
    """`follow` brings them in line with the image; it is called whenever a broker changes there. `on_gone(broker, epoch, why)` is the
    controller's, while this broker is it."""

    def __init__(self, me: int, image: MetadataImage, listener: str) -> None:
        self._me = me
        self._image = image
        self._listener = listener
        self._watched: dict[Key, asyncio.Task[None]] = {}
        self._pulses: dict[Key, PeerProbe] = {}
        self._doubted: dict[Key, float] = {}  # whose pulse broke, and has not been felt since → when
        self._gone: dict[Key, str] = {}
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.on_broker_failed: Gone | None = None

    def update_peers(self) -> None:
        wanted = {
            (broker.id, broker.epoch): broker for broker in self._image.unfenced_brokers() if broker.id != self._me
        }
        for key in [key for key in self._watched if key not in wanted]:
            self._watched.pop(key).cancel()
            self._gone.pop(key, None)
            self._is_sure(key)
        for key, broker in wanted.items():
            if key not in self._watched:
                self._watched[key] = asyncio.get_running_loop().create_task(self._watch(key, broker))

    def failed_brokers(self) -> Iterator[tuple[int, int, str]]:
        """(broker, epoch, why) of those that are gone and not yet fenced."""
        return iter([(*key, why) for key, why in self._gone.items()])

    @property
    def has_suspects(self) -> bool:
        """Whether the image may be about to change, because a broker seems to be gone."""
        if not self._doubted:
            return False
        since = asyncio.get_running_loop().time() - DOUBT_S
        return any(doubted_at > since for doubted_at in self._doubted.values())

    async def wait_until_confirmed(self, brokers: Collection[int]) -> None:
        """Before clients are told to go to these: returns when they have shown that they live, or the image tells what became of those that are gone;
        or after a moment, if neither comes to pass."""
        await self.probe_brokers(brokers, FELT_WITHIN_S)
        if self.has_suspects:
            await self.wait_until_resolved(SURE_WITHIN_S)

    async def probe_brokers(self, brokers: Collection[int], within_s: float) -> None:
        """Returns when each of these has shown that it lives, or its pulse has broken, or the time is over."""
        beats = [pulse.beat() for (broker, _), pulse in self._pulses.items() if broker in brokers]
        if beats:
            await asyncio.wait(beats, timeout=within_s)

    async def wait_until_resolved(self, within_s: float) -> None:
        """Returns when every broker that seemed to be gone is fenced, or there again; or when the time is over."""
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

    async def _watch(self, key: Key, broker: BrokerRegistration) -> None:
        loop = asyncio.get_running_loop()
        at = broker.endpoints.get(self._listener) or next(iter(broker.endpoints.values()))
        felt = False
        while True:
            try:
                _, pulse = await loop.create_connection(PeerProbe, at.host, at.port)
            except OSError as reason:
                if felt and is_connection_refused(reason):
                    self._is_gone(key, f"its port {at.host}:{at.port} refuses connections")
                felt = False
                await asyncio.sleep(AGAIN_S)
                continue
            try:
                await pulse.beat()
                felt = felt or pulse.answered
                if not pulse.ended.done():
                    self._pulses[key] = pulse
                    self._gone.pop(key, None)
                    self._is_sure(key)
                await pulse.ended
            finally:
                self._pulses.pop(key, None)
                pulse.close()
            if felt:
                self._doubted[key] = loop.time()

    def _is_gone(self, key: Key, why: str) -> None:
        self._gone[key] = why
        if self.on_broker_failed is not None:
            self.on_broker_failed(*key, why)

    def _is_sure(self, key: Key) -> None:
        if self._doubted.pop(key, None) is not None and not self._doubted:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)


def is_connection_refused(reason: OSError) -> bool:
    """Whether nobody listens there. A name with several addresses is refused when each of them is."""
    if isinstance(reason, ConnectionRefusedError):
        return True
    numbers = re.findall(r"\[Errno (\d+)\]", str(reason)) if reason.errno is None else []
    return bool(numbers) and all(int(number) == errno.ECONNREFUSED for number in numbers)


class PeerProbe(asyncio.Protocol):
    """`ended` is done when the connection is no more, from whichever side."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answered = False  # ever
        self._received = bytearray()
        self._beating: asyncio.Future[None] | None = None
        self._next: asyncio.Future[None] | None = None  # of all that ask while one beat is awaited

    def beat(self) -> asyncio.Future[None]:
        """Done when the other end has answered something that was sent after this call; or the connection is over."""
        if self.ended.done():
            return self.ended
        asked = self._next = self._next or asyncio.get_running_loop().create_future()
        if self._beating is None:
            self._send()
        return asked

    def _send(self) -> None:
        self._beating, self._next = self._next, None
        if self._beating is not None:
            self._transport.write(PROBE_REQUEST)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4 and len(received) >= (whole := 4 + int.from_bytes(received[:4])):
            del received[:whole]
            self.answered = True
            _done(self._beating)
            self._send()

    def connection_lost(self, reason: Exception | None) -> None:
        for future in (self.ended, self._beating, self._next):
            _done(future)

    def close(self) -> None:
        self._transport.abort()


def _done(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
