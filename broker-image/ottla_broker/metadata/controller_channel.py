"""A broker's way to the active controller, wherever that is at the moment.

`ask` is for what the broker itself wants, `relay` for what a client asked of it and only the controller can answer. Both wait for a controller to
be there, go to the next one when it changes under way, and give up after a while with NOT_CONTROLLER. A request that was under way when its
connection broke is sent again, so it may be carried out twice: requests to a controller are such that the second time changes nothing, or says so.

Each request has a connection of its own while it is under way, so none waits behind a slow one; those that are idle are used again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage

FORWARDING_SOFTWARE_NAME: Final = (
    "ottla-broker"  # what a connection that relays calls its software: what comes over it is not relayed again
)
REQUEST_TIMEOUT_S: Final = 10.0
FORWARD_TIMEOUT_S: Final = 15.0
INITIAL_RETRY_PAUSE_S: Final = 0.02
MAX_RETRY_PAUSE_S: Final = 0.2
CONTROLLER_CHECK_INTERVAL_S: Final = (
    0.1  # how often the one that waits looks whether the controller is still the one it asked
)
MAX_IDLE_CHANNELS: Final = 3


class ControllerLocator(Protocol):
    """Who leads the metadata log."""

    @property
    def is_active_controller(self) -> bool:
        """Whether this broker is the active controller."""
        ...

    def controller_address(self) -> tuple[str, int] | None: ...


class ControllerChannel:
    """`handle_locally` answers a request in this process, while this broker is the controller."""

    def __init__(
        self,
        locator: ControllerLocator,
        client_id: str,
        handle_locally: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        self._locator = locator
        self._client_id = client_id
        self._idle: list[tuple[tuple[str, int], Channel]] = []
        self._handle_locally = handle_locally

    async def send_request(self, request: Any, *, within_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The controller's answer to a kio request, in the version of the request. KafkaError NOT_CONTROLLER when there was none in time."""

        async def one(channel: Channel) -> Any:
            return await channel.send(request)

        async def here() -> Any:
            assert self._handle_locally is not None
            return await self._handle_locally(request)

        return await self._retry_until_answered(one, here, within_s)

    async def forward_frame(self, frame: bytes | bytearray, *, within_s: float = FORWARD_TIMEOUT_S) -> bytes | None:
        """The answer to a client's request, as bytes with their size in front; None when this broker has become the controller and can answer
        itself. KafkaError NOT_CONTROLLER."""
        asked = bytes(frame)

        async def one(channel: Channel) -> bytes:
            answer = await channel.forward(asked)
            return len(answer).to_bytes(4) + asked[4:8] + bytes(answer[4:])

        async def here() -> None:
            return None

        relayed: bytes | None = await self._retry_until_answered(one, here, within_s)
        return relayed

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    async def _retry_until_answered(
        self, there: Callable[[Channel], Awaitable[Any]], here: Callable[[], Awaitable[Any]], within_s: float
    ) -> Any:
        pause_s, why = INITIAL_RETRY_PAUSE_S, "nobody leads the metadata log"
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        if self._locator.is_active_controller:
                            answer = await here()
                        elif (at := self._locator.controller_address()) is not None:
                            answer = await self._send(at, there)
                        else:
                            answer = NO_RESPONSE
                        if answer is not NO_RESPONSE and not _is_not_controller(answer):
                            return answer
                    except KafkaError as reason:
                        if reason.code is not ErrorCode.not_controller:
                            raise
                        why = str(reason)
                    except (OSError, MalformedMessage) as reason:
                        why = str(reason)
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, MAX_RETRY_PAUSE_S)
        except TimeoutError:
            raise KafkaError(ErrorCode.not_controller, f"no controller answered within {within_s:g} s: {why}") from None

    async def _send(self, at: tuple[str, int], there: Callable[[Channel], Awaitable[Any]]) -> Any:
        """ConnectionError when it broke, or when somebody else became the controller meanwhile."""
        asking = asyncio.ensure_future(self._over_channel(at, there))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=CONTROLLER_CHECK_INTERVAL_S)
                if not asking.done() and (
                    self._locator.is_active_controller or self._locator.controller_address() != at
                ):
                    raise ConnectionAbortedError("another broker became the controller")
            return asking.result()
        finally:
            asking.cancel()

    async def _over_channel(self, at: tuple[str, int], there: Callable[[Channel], Awaitable[Any]]) -> Any:
        channel = self._idle_channel(at) or await open_channel(*at, self._client_id, software=FORWARDING_SOFTWARE_NAME)
        try:
            answer = await there(channel)
        except BaseException:
            channel.close()
            raise
        if len(self._idle) < MAX_IDLE_CHANNELS:
            self._idle.append((at, channel))
        else:
            channel.close()
        return answer

    def _idle_channel(self, at: tuple[str, int]) -> Channel | None:
        """Those of earlier controllers are closed on the way."""
        while self._idle:
            address, channel = self._idle.pop()
            if address == at and channel.is_open:
                return channel
            channel.close()
        return None


NO_RESPONSE: Final = object()


def _is_not_controller(answer: Any) -> bool:
    return getattr(answer, "error_code", ErrorCode.none) is ErrorCode.not_controller
