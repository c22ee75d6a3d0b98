"""A client's connection to one broker: requests are sent at once, and responses arrive in the order
of the requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.client_connection import open_connection
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.codec import read_response, request_class, response_class, write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.framing import SCRATCH_BYTES, FrameReader
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.sasl import authenticate

MAX_RESPONSE_BYTES: Final = 1 << 30
# Shared by all channels: one thread has a loop, and received bytes are taken out before another
# channel receives.
_scratch = memoryview(bytearray(SCRATCH_BYTES))

OnResponse = Callable[[bytearray | Exception], None]


class Channel(asyncio.BufferedProtocol):
    """A connection to a broker, created by `open_channel`. `versions`: API key → (lowest, highest)
    version that the broker supports.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._frames = FrameReader(_scratch, MAX_RESPONSE_BYTES, lambda size: True)
        # Correlation id, callback, and the future of a caller that awaits the response.
        self._in_flight: deque[tuple[int, OnResponse, asyncio.Future[bytearray] | None]] = deque()
        self._next_correlation_id = 0
        self._failure: Exception | None = None
        self.versions: dict[int, tuple[int, int]] = {}

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, reason: Exception | None) -> None:
        self._fail(ConnectionResetError(str(reason) if reason else "the broker closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, count: int) -> None:
        try:
            for frame in self._frames.buffer_updated(count):
                self._complete_next(frame)
        except MalformedMessage as reason:
            self._fail(ConnectionError(str(reason)))

    def _complete_next(self, frame: bytearray) -> None:
        correlation_id = int.from_bytes(frame[:4], signed=True)
        if not self._in_flight or self._in_flight[0][0] != correlation_id:
            raise MalformedMessage(f"the response has correlation id {correlation_id}, which is not the next in flight")
        self._in_flight.popleft()[1](frame)

    def _fail(self, reason: Exception) -> None:
        self._failure = self._failure or reason
        self._transport.abort()
        while self._in_flight:
            self._in_flight.popleft()[1](ConnectionResetError(str(reason)))

    # --- requests

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def has_abandoned_request(self) -> bool:
        """True if a caller was cancelled before its response arrived.

        All later responses wait behind that one.
        """
        return any(waiter is not None and waiter.cancelled() for _, _, waiter in self._in_flight)

    def latest_usable_version(self, request: Any) -> int:
        """The request's own version, or else the highest below it that the broker supports.

        Raises KafkaError: UNSUPPORTED_VERSION.
        """
        key, wanted = int(request.__api_key__), int(request.__version__)
        low, high = self.versions.get(key, (0, -1))
        version = min(wanted, high)
        if version < low:
            supported = "no version" if high < 0 else f"versions {low} to {high}"
            message = f"{type(request).__name__} version {wanted} is needed; the broker supports {supported}"
            raise KafkaError(ErrorCode.unsupported_version, message)
        return version

    async def send(self, request: Any) -> Any:
        """Sends a request, a kio class of any version, and returns the response in the same
        version.

        Raises ConnectionError, also for a response that cannot be read; KafkaError:
        UNSUPPORTED_VERSION.
        """
        version = self.latest_usable_version(request)
        key = int(request.__api_key__)
        frame = await self.send_in_version(key, version, request)
        return self.read_response(bytes(frame), key, version, response_class(key, int(request.__version__)))

    async def send_in_version(self, key: int, version: int, request: Any) -> bytearray:
        """Sends a request in exactly this version; returns the response's frame without its
        size.
        """
        correlation_id = self.next_correlation_id()
        frame = write_request(key, version, correlation_id, self._client_id, request)
        return await self.send_frame(correlation_id, [frame])

    def read_response(self, frame: bytes, key: int, version: int, anchor: type[Any] | None = None) -> Any:
        """As `codec.read_response`, but a response that cannot be read fails the connection. Raises
        ConnectionError.
        """
        try:
            return read_response(frame, key, version, anchor)
        except MalformedMessage as reason:
            error = ConnectionError(f"malformed response to {ApiKey(key).title}: {reason}")
            self._fail(error)
            raise error from reason

    async def forward(self, frame: bytes) -> bytearray:
        """Sends a request of another client (a frame without its size) under a correlation id of
        this channel.
        """
        correlation_id = self.next_correlation_id()
        buffers = [len(frame).to_bytes(4), frame[:4], correlation_id.to_bytes(4), frame[8:]]
        return await self.send_frame(correlation_id, buffers)

    async def send_frame(self, correlation_id: int, buffers: list[Any]) -> bytearray:
        """Sends a request; returns the response's frame without its size."""
        waiter: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()

        def complete(response: bytearray | Exception) -> None:
            if waiter.done():
                return  # the caller was cancelled
            if isinstance(response, Exception):
                waiter.set_exception(response)
            else:
                waiter.set_result(response)

        self.send_with_callback(correlation_id, buffers, complete, waiter)
        return await waiter

    def next_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        return correlation_id

    def send_with_callback(
        self,
        correlation_id: int,
        buffers: list[Any],
        on_response: OnResponse,
        waiter: "asyncio.Future[bytearray] | None" = None,
    ) -> None:
        """Sends a request. `on_response` gets the response's frame, or the reason why there is
        none.

        It is called in the iteration of the loop in which the response arrives, and may raise
        MalformedMessage to close the connection. Raises ConnectionResetError if the connection has
        failed.
        """
        if self._failure is not None:
            raise ConnectionResetError(str(self._failure))
        self._in_flight.append((correlation_id, on_response, waiter))
        self._transport.writelines(buffers)

    async def load_api_versions(self, software: str = "ottla") -> None:
        """Asks for the versions that the broker supports.

        A broker that does not know our ApiVersions responds in version 0.
        """
        from kio.schema.api_versions.v3.request import ApiVersionsRequest  # takes 3 ms, and not every broker has peers

        request = ApiVersionsRequest(client_software_name=software, client_software_version="0.1.0")
        frame = bytes(await self.send_in_version(ApiKey.API_VERSIONS, 3, request))
        version = 3
        if frame[4:6] == ErrorCode.unsupported_version.to_bytes(2):
            version = 0
            frame = bytes(await self.send_in_version(ApiKey.API_VERSIONS, 0, request_class(ApiKey.API_VERSIONS, 0)()))
        try:
            error, versions = _read_api_versions(frame[4:], version)
        except MalformedMessage as reason:
            raise ConnectionError(f"malformed response to ApiVersions: {reason}") from reason
        if error is not ErrorCode.none:
            raise KafkaError(error, f"ApiVersions failed: {error.name}")
        self.versions = versions.copy()

    def close(self) -> None:
        self._fail(ConnectionAbortedError("closed by the client"))


@lru_cache(maxsize=16)
def _read_api_versions(body: bytes, version: int) -> tuple[ErrorCode, dict[int, tuple[int, int]]]:
    """The error code of an ApiVersions response, and the served versions by API key. Cached,
    because most brokers answer as the last one did, and the list is long.
    """
    response = read_response(bytes(4) + body, ApiKey.API_VERSIONS, version)
    return response.error_code, {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


async def open_channel(
    host: str, port: int, client_id: str, *, software: str = "ottla", security: ClientSecurity = UNSECURED
) -> Channel:
    """Connects, loads the broker's API versions, and authenticates if `security` says so.

    `software` is the client software name (KIP-511). Raises OSError; KafkaError if ApiVersions or
    authentication fails.
    """
    channel = await open_connection(lambda: Channel(client_id), host, port, security)
    try:
        await channel.load_api_versions(software)
        if security.uses_sasl:
            await authenticate(channel.send, security)
    except BaseException:
        channel.close()
        raise
    return channel


def is_open_channel(opening: asyncio.Task[Channel]) -> bool:
    """True if a task has opened a connection that is still open. Retrieves the task's exception."""
    return opening.done() and not opening.cancelled() and not opening.exception() and opening.result().is_open
