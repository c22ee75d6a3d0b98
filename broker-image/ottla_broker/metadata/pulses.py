"""A pulse: one idle connection from the active controller to each unfenced broker, which breaks when that broker's process ends.

A broken pulse alone says nothing (a machine between may have forgotten it); but when a new one is refused at once, nobody listens there any
more, and the broker need not be silent for a whole session before others lead. Whatever else happens to a pulse is left to the session.
"""

import asyncio
import errno
import logging
import re
from collections.abc import Awaitable, Callable

from ottla_broker.metadata.image import BrokerImage, Image
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

AGAIN_S = 1.0  # until a broker is tried again that could not be reached

Fence = Callable[[int, int, str], Awaitable[None]]


class Pulses:
    """`follow` brings them in line with the image; `fence(broker, epoch, why)` is called for one whose port refuses."""

    def __init__(self, me: int, image: Image, fence: Fence, listener: str) -> None:
        self._me = me
        self._image = image
        self._fence = fence
        self._listener = listener
        self._watched: dict[tuple[int, int], asyncio.Task[None]] = {}  # by broker and epoch

    def follow(self) -> None:
        wanted = {(broker.id, broker.epoch): broker for broker in self._image.alive_brokers() if broker.id != self._me}
        for key in [key for key in self._watched if key not in wanted or self._watched[key].done()]:
            self._watched.pop(key).cancel()
        for key, broker in wanted.items():
            if key not in self._watched:
                self._watched[key] = asyncio.get_running_loop().create_task(self._watch(broker))

    def close(self) -> None:
        for task in self._watched.values():
            task.cancel()
        self._watched.clear()

    async def _watch(self, broker: BrokerImage) -> None:
        at = broker.endpoints.get(self._listener) or next(iter(broker.endpoints.values()))
        felt = False
        while True:
            try:
                _, pulse = await asyncio.get_running_loop().create_connection(Pulse, at.host, at.port)
            except OSError as reason:
                if felt and refused(reason):
                    await self._lost(broker, f"its port {at.host}:{at.port} refuses connections")
                    return
                felt = False
                await asyncio.sleep(AGAIN_S)
            else:
                felt = True
                try:
                    await pulse.ended
                finally:
                    pulse.close()

    async def _lost(self, broker: BrokerImage, why: str) -> None:
        try:
            await self._fence(broker.id, broker.epoch, why)
        except KafkaError as reason:
            logger.warning("broker %d is gone, but could not be fenced: %s", broker.id, reason)


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
