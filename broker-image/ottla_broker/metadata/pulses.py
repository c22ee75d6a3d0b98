"""Pulses: one idle connection from each broker to each other that is unfenced, which breaks when that broker's process ends.

A broken pulse alone says nothing (a machine between may have forgotten it); but when a new one is refused at once, nobody listens there any more:
the broker is *gone*, and need not be silent for a whole session before others lead. Whoever is the controller then fences it, and all brokers
can make clients who ask where things are wait the moment until that has happened, instead of sending them to the dead. Whatever else happens to a
pulse is left to the session.
"""

import asyncio
import errno
import logging
import re
from collections.abc import Callable, Iterator
from typing import Final

from ottla_broker.metadata.image import BrokerImage, Image

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0  # until a broker is tried again that could not be reached
DOUBT_S: Final = 1.0  # how long a broker that seems to be gone may make clients wait

Key = tuple[int, int]  # a broker and its epoch
Gone = Callable[[int, int, str], None]


class Pulses:
    """`follow` brings them in line with the image; it is called whenever a broker changes there. `on_gone(broker, epoch, why)` is the
    controller's, while this broker is it."""

    def __init__(self, me: int, image: Image, listener: str) -> None:
        self._me = me
        self._image = image
        self._listener = listener
        self._watched: dict[Key, asyncio.Task[None]] = {}
        self._doubted: dict[Key, float] = {}  # whose pulse broke, and has not been felt since → when
        self._gone: dict[Key, str] = {}
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.on_gone: Gone | None = None

    def follow(self) -> None:
        wanted = {(broker.id, broker.epoch): broker for broker in self._image.alive_brokers() if broker.id != self._me}
        for key in [key for key in self._watched if key not in wanted]:
            self._watched.pop(key).cancel()
            self._gone.pop(key, None)
            self._is_sure(key)
        for key, broker in wanted.items():
            if key not in self._watched:
                self._watched[key] = asyncio.get_running_loop().create_task(self._watch(key, broker))

    def gone(self) -> Iterator[tuple[int, int, str]]:
        """(broker, epoch, why) of those that are gone and not yet fenced."""
        return iter([(*key, why) for key, why in self._gone.items()])

    @property
    def doubts(self) -> bool:
        """Whether the image may be about to change, because a broker seems to be gone."""
        if not self._doubted:
            return False
        since = asyncio.get_running_loop().time() - DOUBT_S
        return any(doubted_at > since for doubted_at in self._doubted.values())

    async def sure(self, within_s: float) -> None:
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

    async def _watch(self, key: Key, broker: BrokerImage) -> None:
        loop = asyncio.get_running_loop()
        at = broker.endpoints.get(self._listener) or next(iter(broker.endpoints.values()))
        felt = False
        while True:
            try:
                _, pulse = await loop.create_connection(Pulse, at.host, at.port)
            except OSError as reason:
                if felt and refused(reason):
                    self._is_gone(key, f"its port {at.host}:{at.port} refuses connections")
                felt = False
                await asyncio.sleep(AGAIN_S)
                continue
            felt = True
            self._gone.pop(key, None)
            self._is_sure(key)
            try:
                await pulse.ended
            finally:
                pulse.close()
            self._doubted[key] = loop.time()

    def _is_gone(self, key: Key, why: str) -> None:
        self._gone[key] = why
        if self.on_gone is not None:
            self.on_gone(*key, why)

    def _is_sure(self, key: Key) -> None:
        if self._doubted.pop(key, None) is not None and not self._doubted:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)


def refused(reason: OSError) -> bool:
    """Whether nobody listens there. A name with several addresses is refused when each of them is."""
    if isinstance(reason, ConnectionRefusedError):
        return True
    numbers = re.findall(r"\[Errno (\d+)\]", str(reason)) if reason.errno is None else []
    return bool(numbers) and all(int(number) == errno.ECONNREFUSED for number in numbers)


class Pulse(asyncio.Protocol):
    """`ended` is done when the connection is no more, from whichever side."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, reason: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        self._transport.abort()  # type: ignore[attr-defined]  # every socket transport has it
