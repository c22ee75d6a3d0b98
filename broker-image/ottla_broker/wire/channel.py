"""One connection to a broker, as a client has it: requests go out at once, answers come back in their order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from kio.schema.api_versions.v3.request import ApiVersionsRequest

from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.codec import API_VERSIONS, read_response, request_class, response_class, write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.framing import SCRATCH_BYTES, FrameReader
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.sasl import log_in

LARGEST_ANSWER = 1 << 30
UNSECURED: Final = ClientSecurity()
_scratch = memoryview(bytearray(SCRATCH_BYTES))  # shared by the channels of the one thread that has a loop


Answered = Callable[[bytearray | Exception], None]


class Channel(asyncio.BufferedProtocol):
    """Made by `open_channel`. `versions`: API key → (lowest, highest) that the broker speaks."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._frames = FrameReader(_scratch, LARGEST_ANSWER, lambda size: True)
        self._waiting: deque[tuple[int, Answered, asyncio.Future[bytearray] | None]] = deque()
        self._next_correlation = 0
        self._broken: Exception | None = None
        self.versions: dict[int, tuple[int, int]] = {}

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, reason: Exception | None) -> None:
        self._break(ConnectionResetError(str(reason) if reason else "the broker closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, count: int) -> None:
        try:
            for frame in self._frames.buffer_updated(count):
                self._answered(frame)
        except MalformedMessage as reason:
            self._break(ConnectionError(str(reason)))

    def _answered(self, frame: bytearray) -> None:
        correlation_id = int.from_bytes(frame[:4], signed=True)
        if not self._waiting or self._waiting[0][0] != correlation_id:
            raise MalformedMessage(f"an answer to request {correlation_id}, which is not the next one waited for")
        self._waiting.popleft()[1](frame)

    def _break(self, reason: Exception) -> None:
        self._broken = self._broken or reason
        self._transport.abort()
        while self._waiting:
            self._waiting.popleft()[1](ConnectionResetError(str(reason)))

    # --- requests

    @property
    def is_open(self) -> bool:
        return self._broken is None

    @property
    def has_abandoned_request(self) -> bool:
        """Whether somebody gave up an answer that has not come. All later answers stand behind it."""
        return any(waiter is not None and waiter.cancelled() for _, _, waiter in self._waiting)

    def latest_usable_version(self, request: Any) -> int:
        """The version to send a request in: its own, or the highest below that the broker speaks. UNSUPPORTED_VERSION."""
        key, wanted = int(request.__api_key__), int(request.__version__)
        low, high = self.versions.get(key, (0, -1))
        version = min(wanted, high)
        if version < low:
            spoken = "not at all" if high < 0 else f"in versions {low} to {high}"
            name = type(request).__name__
            raise KafkaError(ErrorCode.unsupported_version, f"{name} {wanted} is wanted; the broker speaks it {spoken}")
        return version

    async def send(self, request: Any) -> Any:
        """Sends a request, a kio class of any version, and gives its answer in that same version. ConnectionError, UNSUPPORTED_VERSION."""
        version = self.latest_usable_version(request)
        key = int(request.__api_key__)
        frame = await self.send_in_version(key, version, request)
        return read_response(bytes(frame), key, version, response_class(key, int(request.__version__)))

    async def send_in_version(self, key: int, version: int, request: Any) -> bytearray:
        """Sends a request in exactly this version; the raw answer without its size."""
        correlation_id = self.next_correlation_id()
        return await self.send_frame(
            correlation_id, [write_request(key, version, correlation_id, self._client_id, request)]
        )

    async def forward(self, frame: bytes) -> bytearray:
        """Sends somebody else's request (a frame without its size) under a correlation id of ours; the raw answer without its size."""
        correlation_id = self.next_correlation_id()
        return await self.send_frame(
            correlation_id, [len(frame).to_bytes(4), frame[:4], correlation_id.to_bytes(4), frame[8:]]
        )

    async def send_frame(self, correlation_id: int, buffers: list[Any]) -> bytearray:
        waiter: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()

        def answered(answer: bytearray | Exception) -> None:
            if waiter.done():
                return  # nobody waits for it any more
            if isinstance(answer, Exception):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)

        self.send_with_callback(correlation_id, buffers, answered, waiter)
        return await waiter

    def next_correlation_id(self) -> int:
        correlation_id = self._next_correlation
        self._next_correlation = (correlation_id + 1) & 0x7FFF_FFFF
        return correlation_id

    def send_with_callback(
        self,
        correlation_id: int,
        buffers: list[Any],
        answered: Answered,
        waiter: "asyncio.Future[bytearray] | None" = None,
    ) -> None:
        """Sends a request; `answered` is called with the raw answer in the turn of the loop in which it comes, or with why there will be none.
        It may raise Malformed, which ends the connection. ConnectionResetError when that is over already."""
        if self._broken is not None:
            raise ConnectionResetError(str(self._broken))
        self._waiting.append((correlation_id, answered, waiter))
        self._transport.writelines(buffers)

    async def load_api_versions(self, software: str = "ottla") -> None:
        """Asks what the broker speaks; one older than our question says so in version 0."""
        hello = ApiVersionsRequest(client_software_name=software, client_software_version="0.1.0")
        frame = bytes(await self.send_in_version(API_VERSIONS, 3, hello))
        if frame[4:6] == ErrorCode.unsupported_version.to_bytes(2):
            frame = bytes(await self.send_in_version(API_VERSIONS, 0, request_class(API_VERSIONS, 0)()))
            answer = read_response(frame, API_VERSIONS, 0)
        else:
            answer = read_response(frame, API_VERSIONS, 3)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code, "the broker does not tell its versions")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def close(self) -> None:
        self._break(ConnectionAbortedError("closed by this side"))


async def open_channel(
    host: str, port: int, client_id: str, *, software: str = "ottla", security: ClientSecurity = UNSECURED
) -> Channel:
    """Connects, learns what the broker speaks, and logs in where that is wished. `software`: what this side calls itself (KIP-511). OSError,
    ConnectionError; KafkaError of a login that fails."""
    context = security.ssl_context()
    _, channel = await asyncio.get_running_loop().create_connection(
        lambda: Channel(client_id), host, port, ssl=context, server_hostname=host if context else None
    )
    try:
        await channel.load_api_versions(software)
        if security.uses_sasl:
            await log_in(channel, security)
    except BaseException:
        channel.close()
        raise
    return channel
