"""Sends requests to the active controller, wherever it is.

`send_request` is for the broker's own requests, `forward_frame` for clients' requests that only the
controller can answer. Both wait for a controller, continue with the next one when it changes, and
time out with NOT_CONTROLLER. A request in flight on a broken connection is sent again, so it may be
executed twice: the second execution of a request to a controller changes nothing, or fails, unless
another request came between, as with Apache Kafka's forwarded requests.

Each request in flight has its own connection, so none waits behind a slow one. Idle connections are
reused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ottla_broker.security.principal import Principal
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError

# Client software name of forwarding connections: requests on them are not forwarded again.
FORWARDING_SOFTWARE_NAME: Final = "ottla-broker"
NO_RESPONSE: Final = object()
REQUEST_TIMEOUT_S: Final = 10.0
FORWARD_TIMEOUT_S: Final = 15.0
INITIAL_RETRY_PAUSE_S: Final = 0.02
MAX_RETRY_PAUSE_S: Final = 0.2
CONTROLLER_CHECK_INTERVAL_S: Final = 0.1  # a request in flight is abandoned when the controller has changed
MAX_IDLE_CHANNELS: Final = 3


class ControllerLocator(Protocol):
    """Finds the active controller; `is_active_controller`: it is this broker."""

    @property
    def is_active_controller(self) -> bool: ...

    def controller_endpoint(self) -> tuple[str, int] | None: ...


@dataclass(eq=False, repr=False)
class ControllerChannel:
    """`_handle_locally` handles a request in this process while this broker is the controller."""

    _locator: ControllerLocator
    _client_id: str
    _handle_locally: Callable[[Any], Awaitable[Any]] | None = None
    _channels: ChannelBuilder = UNSECURED_CHANNELS
    _idle: list[tuple[tuple[str, int], Channel]] = field(default_factory=list)

    async def send_request(self, request: Any, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The controller's response to a kio request, in the request's version. Raises
        NOT_CONTROLLER at the timeout.
        """

        async def send(channel: Channel) -> Any:
            return await channel.send(request)

        async def handle() -> Any:
            assert self._handle_locally is not None
            return await self._handle_locally(request)

        return await self._retry_until_answered(send, handle, timeout_s)

    async def forward_frame(
        self, frame: bytes | bytearray, principal: Principal, host: str, *, timeout_s: float = FORWARD_TIMEOUT_S
    ) -> bytes | None:
        """Forwards a client's request, for which the controller authorizes the client. Returns the
        response with its size in front; None when this broker has become the controller and can
        handle the request. Raises NOT_CONTROLLER at the timeout, or the error of an Envelope that
        the controller rejects.
        """
        # The messages would take 2 ms of a broker's start.
        from kio.schema.envelope.v0.request import EnvelopeRequest
        from kio.schema.envelope.v0.response import EnvelopeResponse

        from ottla_broker.wire.forwarding import write_host, write_principal

        request = EnvelopeRequest(
            request_data=bytes(frame),
            request_principal=write_principal(
                principal.kind, principal.name, token_authenticated=principal.token_authenticated
            ),
            client_host_address=write_host(host),
        )

        async def forward(channel: Channel) -> EnvelopeResponse:
            response: EnvelopeResponse = await channel.send(request)
            return response

        async def handle() -> None:
            return None

        response: EnvelopeResponse | None = await self._retry_until_answered(forward, handle, timeout_s)
        if response is None:
            return None
        if response.error_code is not ErrorCode.none or response.response_data is None:
            raise KafkaError(response.error_code, "the controller refused a request that this broker forwarded")
        return len(response.response_data).to_bytes(4) + response.response_data

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    async def _retry_until_answered(
        self, send: Callable[[Channel], Awaitable[Any]], handle: Callable[[], Awaitable[Any]], timeout_s: float
    ) -> Any:
        """The response to a request that `send` sends to the controller, and that `handle` handles
        if this broker is the controller.
        """
        pause_s, error = INITIAL_RETRY_PAUSE_S, "no broker is the controller"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        response = await self._attempt(send, handle)
                        if response is not NO_RESPONSE and not _is_not_controller(response):
                            return response
                    except KafkaError as reason:
                        if reason.code is not ErrorCode.not_controller:
                            raise
                        error = str(reason)
                    except OSError as reason:
                        error = str(reason)
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, MAX_RETRY_PAUSE_S)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.not_controller, f"no controller answered within {timeout_s:g} s: {error}"
            ) from None

    async def _attempt(self, send: Callable[[Channel], Awaitable[Any]], handle: Callable[[], Awaitable[Any]]) -> Any:
        """Returns NO_RESPONSE if there is no controller. Raises ConnectionError when another broker
        becomes controller meanwhile.
        """
        if self._locator.is_active_controller:
            return await handle()
        address = self._locator.controller_endpoint()
        if address is None:
            return NO_RESPONSE
        request = asyncio.ensure_future(self._send_over_channel(address, send))
        try:
            while not request.done():
                await asyncio.wait({request}, timeout=CONTROLLER_CHECK_INTERVAL_S)
                # While no controller is known, the one that has the request may still execute it:
                # sent to the same one again, it could undo what came between.
                known = self._locator.controller_endpoint()
                has_changed = self._locator.is_active_controller or known not in (None, address)
                if has_changed and not request.done():
                    raise ConnectionAbortedError("another broker became the controller")
            return request.result()
        finally:
            request.cancel()

    async def _send_over_channel(self, address: tuple[str, int], send: Callable[[Channel], Awaitable[Any]]) -> Any:
        """Sends a request over an idle connection or a new one. The connection is kept for later
        requests, unless MAX_IDLE_CHANNELS are idle already."""
        channel = self._take_idle_channel(address)
        if channel is None:
            channel = await self._channels.open_channel(*address, self._client_id, software=FORWARDING_SOFTWARE_NAME)
        try:
            response = await send(channel)
        except BaseException:
            channel.close()
            raise
        if len(self._idle) < MAX_IDLE_CHANNELS:
            self._idle.append((address, channel))
        else:
            channel.close()
        return response

    def _take_idle_channel(self, address: tuple[str, int]) -> Channel | None:
        """An idle connection to the controller, or None. Closes those to earlier controllers."""
        while self._idle:
            idle_address, channel = self._idle.pop()
            if idle_address == address and channel.is_open:
                return channel
            channel.close()
        return None


def _is_not_controller(response: Any) -> bool:
    return getattr(response, "error_code", ErrorCode.none) is ErrorCode.not_controller
