"""Requests of coordinators and partition leaders to other brokers, on one connection to each."""

import asyncio
from typing import Any, Final

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.wire.channel import Channel, is_open_channel
from ottla_broker.wire.channel_builder import ChannelBuilder

REQUEST_TIMEOUT_S: Final = 30.0


class BrokerConnections:
    """`listener`: the inter-broker listener."""

    def __init__(self, image: MetadataImage, listener: str, client_id: str, channels: ChannelBuilder) -> None:
        self._image = image
        self._listener = listener
        self._client_id = client_id
        self._channel_builder = channels
        self._channels: dict[tuple[str, int], asyncio.Task[Channel]] = {}

    async def send(self, broker: int, request: Any) -> Any:
        """The response of another broker, in the request's version. Raises OSError when it is not
        reachable or does not respond in time; KafkaError UNSUPPORTED_VERSION.
        """
        registered = self._image.brokers.get(broker)
        endpoint = None if registered is None else registered.endpoints.get(self._listener)
        if endpoint is None:
            raise ConnectionError(f"broker {broker} is not registered with listener {self._listener}")
        address = endpoint.host, endpoint.port
        opening = self._channels.get(address)
        if opening is None or (opening.done() and not is_open_channel(opening)):
            open_channel = self._channel_builder.open_channel(*address, self._client_id)
            opening = self._channels[address] = asyncio.get_running_loop().create_task(open_channel)
            opening.add_done_callback(is_open_channel)  # retrieves the exception, which asyncio would log
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                channel = await asyncio.shield(opening)
                return await channel.send(request)
        except TimeoutError:
            self._close(address)  # later responses would wait behind the one that does not come
            raise

    def _close(self, address: tuple[str, int]) -> None:
        if (opening := self._channels.pop(address, None)) is not None:
            if is_open_channel(opening):
                opening.result().close()
            opening.cancel()

    def close(self) -> None:
        for address in list(self._channels):
            self._close(address)
