"""Forwards to the new leader what producers still send to a leader that has just stepped down.

A client that gets NOT_LEADER_OR_FOLLOWER sends again after 0.1 s, but librdkafka asks for the new
leader only after 0.25 s (`topic.metadata.refresh.fast.interval.ms`). What it sends here in between
is forwarded as it is: a planned restart stalls a producer for 0.11 s instead of 0.31 (bench line
`planned`).

- What a client had in flight when it got the error is rejected like the first request, so its
  records keep their order: requests are forwarded only after a pause, and those of an idempotent
  producer, which may be slow to read the error, only once its first rejected batch has come again
  (`RejectedBatches`).
- A client that has found the new leader is not held back there. If a later batch of an idempotent
  producer overtakes a forwarded one, the new leader rejects it as out of order, and the client
  sends it again, because it has no response to the earlier one yet.
- A broker that is about to stop waits until redirected clients have had the time to ask for the new
  leader.
- When the new leader was asked and does not answer, it is unknown whether the records were
  appended: the client's connection is closed."""

import asyncio
from collections import defaultdict
from typing import Final

from ottla_broker.event_timeout import wait_for_event
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partition import FORWARDING_S
from ottla_broker.wire.channel import Channel, is_open_channel
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder

CLIENT_RETRY_PAUSE_S: Final = 0.03
"""A client that sends a request this long after the error was sent has read the error; clients wait
for 0.1 s before they send again."""
CLIENT_REFRESH_S: Final = 0.35
"""Within this time redirected clients ask for the new leader; librdkafka after 0.25 s."""
MAX_SHUTDOWN_WAIT_S: Final = 1.0
GRACE_S: Final = 1.0  # beyond a request's own timeout


class ProduceForwarder:
    """`listener`: the inter-broker listener."""

    def __init__(
        self, image: MetadataImage, listener: str, client_id: str, channels: ChannelBuilder = UNSECURED_CHANNELS
    ) -> None:
        self._image = image
        self._listener = listener
        self._client_id = client_id
        self._channel_builder = channels
        self._channels: dict[int, asyncio.Task[Channel]] = {}
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._clients_refreshed = asyncio.Event()
        self._clients_refreshed.set()

    def on_client_redirected(self, leader: int) -> None:
        """Called when a client gets NOT_LEADER_OR_FOLLOWER because `leader` leads. Connects to that
        broker, so that the client's next requests can be forwarded.
        """
        self._channel_to(leader)
        self._clients_refreshed.clear()
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
        loop = asyncio.get_running_loop()
        self._refresh_timer = loop.call_later(CLIENT_REFRESH_S, self._clients_refreshed.set)

    async def forward(self, leader: int, frame: bytes, timeout_ms: int) -> bytes | None:
        """The response to a client's request, with its size in front; None when the new leader
        could not be asked. Raises OSError when it was asked, and it is not known whether the
        records were appended."""
        opening = self._channel_to(leader)
        if opening is None:
            return None
        async with self._locks[leader]:  # requests keep their order while the connection is opened
            try:
                channel = await asyncio.shield(opening)
            except OSError:
                return None
            sent = asyncio.get_running_loop().create_task(channel.forward(frame))
        async with asyncio.timeout(max(timeout_ms, 0) / 1000 + GRACE_S):
            response = await sent
        return len(response).to_bytes(4) + frame[4:8] + bytes(response[4:])

    async def wait_for_redirected_clients(self) -> None:
        """Called before a stop. Returns when redirected clients have had the time to ask for the
        new leader.
        """
        await wait_for_event(self._clients_refreshed, MAX_SHUTDOWN_WAIT_S)

    def close(self) -> None:
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
        for opening in self._channels.values():
            if is_open_channel(opening):
                opening.result().close()
            opening.cancel()
        self._channels.clear()

    def _channel_to(self, leader: int) -> asyncio.Task[Channel] | None:
        known = self._channels.get(leader)
        if known is not None and (not known.done() or is_open_channel(known)):
            return known
        registered = self._image.brokers.get(leader)
        endpoint = None if registered is None else registered.endpoints.get(self._listener)
        if endpoint is None:
            return None
        opening = asyncio.get_running_loop().create_task(self._open(endpoint.host, endpoint.port))
        opening.add_done_callback(is_open_channel)  # retrieves the exception, which asyncio would log
        self._channels[leader] = opening
        return opening

    async def _open(self, host: str, port: int) -> Channel:
        async with asyncio.timeout(FORWARDING_S):
            return await self._channel_builder.open_channel(host, port, self._client_id)
