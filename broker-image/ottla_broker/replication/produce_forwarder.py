"""What producers still send to a leader that has just stepped down, brought to its successor.

A client that hears NOT_LEADER_OR_FOLLOWER sends again after a tenth of a second. But librdkafka asks only after a quarter of one who leads now
(`topic.metadata.refresh.fast.interval.ms`), and would wait as long for an acknowledgement. So it is told at once, and what it sends here all the
same is passed on for a while, as it is.

- What a client had under way when it was told is refused like the first of it, so its records keep their order: only what comes after a pause is
  passed on; of an idempotent producer, who may be slow to hear, only once the first that was refused has come again.
- Nothing holds back what a client that has found the successor sends there meanwhile. A later batch of an idempotent producer that overtakes one that is being
  passed on is out of order there; its client sends it again, because it has no answer to the earlier one yet. To wait for the earlier one would cost time where,
  mostly, there is none.
- A broker that is about to stop stays until those that it told have had the time to ask.
- Where a successor was asked and does not answer, nobody knows whether the records were appended: the client's connection is closed.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import Final

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.wire.channel import Channel, open_channel

FORWARDING_S: Final = 1.0
"""How long after it stepped down a leader passes on what comes."""
CLIENT_RETRY_PAUSE_S: Final = 0.03
"""Who sends again so long after it was told has heard it; clients wait for 0.1 s."""
ASKS_WITHIN_S: Final = 0.35  # of being told: librdkafka after 0.25
STAYS_S: Final = 1.0
GRACE_S: Final = 1.0  # on top of a request's own timeout


class ProduceForwarder:
    """`listener`: on which brokers reach each other."""

    def __init__(self, image: MetadataImage, listener: str, client_id: str) -> None:
        self._image = image
        self._listener = listener
        self._client_id = client_id
        self._channels: dict[int, asyncio.Task[Channel]] = {}
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asking: asyncio.TimerHandle | None = None
        self._have_asked = asyncio.Event()
        self._have_asked.set()

    def on_client_redirected(self, leader: int) -> None:
        """A client hears now that `leader` leads; when it sends again there will be a connection."""
        self._channel_to(leader)
        self._have_asked.clear()
        if self._asking is not None:
            self._asking.cancel()
        self._asking = asyncio.get_running_loop().call_later(ASKS_WITHIN_S, self._have_asked.set)

    async def forward(self, leader: int, frame: bytes, timeout_ms: int) -> bytes | None:
        """The answer to a client's request, with its size in front; None when the successor could not be asked. OSError or TimeoutError when it
        was, and what came of that is not known."""
        opening = self._channel_to(leader)
        if opening is None:
            return None
        async with self._turns[leader]:  # who comes when there is a connection does not overtake who has waited for it
            try:
                channel = await asyncio.shield(opening)
            except OSError:  # TimeoutError too
                return None
            asked = asyncio.get_running_loop().create_task(channel.forward(frame))
        async with asyncio.timeout(max(timeout_ms, 0) / 1000 + GRACE_S):
            answer = await asked
        return len(answer).to_bytes(4) + frame[4:8] + bytes(answer[4:])

    async def wait_for_redirected_clients(self) -> None:
        """Before a stop: returns when clients that were told have had the time to ask who leads."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._have_asked.wait(), STAYS_S)

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        for opening in self._channels.values():
            if _usable(opening):
                opening.result().close()
            opening.cancel()
        self._channels.clear()

    def _channel_to(self, leader: int) -> asyncio.Task[Channel] | None:
        known = self._channels.get(leader)
        if known is not None and (not known.done() or _usable(known)):
            return known
        registered = self._image.brokers.get(leader)
        at = None if registered is None else registered.endpoints.get(self._listener)
        if at is None:
            return None
        opening = asyncio.get_running_loop().create_task(self._open(at.host, at.port))
        opening.add_done_callback(_usable)  # somebody has looked at what went wrong
        self._channels[leader] = opening
        return opening

    async def _open(self, host: str, port: int) -> Channel:
        async with asyncio.timeout(FORWARDING_S):
            return await open_channel(host, port, self._client_id)


def _usable(opening: asyncio.Task[Channel]) -> bool:
    return opening.done() and not opening.cancelled() and opening.exception() is None and opening.result().is_open
