"""One connection to one broker, over which this broker fetches every partition that it copies from
there: as a follower from their leader, or for a mirror from a broker of the source.

A response is processed, and the next request sent, in the iteration of the event loop in which it
arrives. A failure of one partition does not affect the others: its fetches pause.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Generic, Protocol, TypeVar

import msgspec

from ottla_broker.event_timeout import wait_for_event
from ottla_broker.replication.fetch_session_handler import SESSION_LOST_ERRORS, FetchedPartition, FetchSessionHandler
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import NO_EPOCH, FetchRequest, write_fetch_request
from ottla_broker.wire.fetch_response import FetchResponsePartition, read_fetch_response
from ottla_broker.wire.list_offsets import build_list_offsets
from ottla_broker.wire.message_reader import MalformedMessage

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=FetchedPartition)
P_contra = TypeVar("P_contra", bound=FetchedPartition, contravariant=True)


class FetcherTiming(msgspec.Struct, frozen=True):
    """A connection is replaced when a response takes longer than the request's own wait plus
    `first_timeout_s`; that time doubles with each timeout up to `max_timeout_s`. A new connection
    is tried after `first_pause_s`, which doubles with each failure up to `max_pause_s`. A response
    resets both.
    """

    first_timeout_s: float
    max_timeout_s: float
    first_pause_s: float
    max_pause_s: float


class FetcherOwner(Protocol[P_contra]):
    """The user of a fetcher: it names the broker, and processes the responses."""

    name: str
    client_id: str
    timing: FetcherTiming

    @property
    def max_partition_bytes(self) -> int: ...

    async def connect(self) -> tuple[Channel, int]:
        """A connection, and the version of Fetch to speak over it. Raises OSError, KafkaError."""
        ...

    def next_request(self) -> FetchRequest:
        """Returns a request without session and partitions. Raises ConnectionError when a new
        connection is needed.
        """
        ...

    def send_pause_s(self) -> float | None:
        """Seconds until the next request may be sent; None: not before the owner calls `send`."""
        ...

    def on_response(self, size: int) -> None:
        """Called with the size of each response."""
        ...

    def process(self, partition: P_contra, data: FetchResponsePartition) -> None:
        """Processes the next response for a partition of the session."""
        ...

    def on_disconnect(self, reason: Exception) -> None: ...


class Fetcher(Generic[P]):
    def __init__(self, owner: FetcherOwner[P], *, pipelined: bool) -> None:
        self.session: FetchSessionHandler[P] = FetchSessionHandler(pipelined=pipelined)
        self.channel: Channel | None = None
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._version = -1
        self._sent_s = 0.0
        self._max_wait_s = 0.0
        self._timeout_s = owner.timing.first_timeout_s
        self._pause_s = owner.timing.first_pause_s
        self._closed: asyncio.Future[Exception] | None = None  # why the connection is over
        self._send_soon: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_at_s = 0.0  # a handle of uvloop cannot be asked for a time that has passed
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._has_partitions = asyncio.Event()
        self._reconnect = asyncio.Event()
        self._running = self._loop.create_task(self._run(), name=owner.name)

    # --- what is fetched

    def add(self, partition: P) -> None:
        self.session.add(partition)
        self._has_partitions.set()
        self.send_soon()

    def remove(self, partition: P) -> None:
        self.session.remove(partition)
        if not self.session:
            self._has_partitions.clear()
            self.disconnect(ConnectionAbortedError("no partition is fetched from this broker any longer"))

    def reconnect_now(self) -> None:
        """Ends the pause before the next attempt to connect, because the broker may be back.
        Without effect on an open connection.
        """
        self._reconnect.set()

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Runs a task until the connection ends."""
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    # --- the connection

    async def _run(self) -> None:
        owner = self._owner
        while True:
            await self._has_partitions.wait()
            try:
                async with asyncio.timeout(self._timeout_s):
                    self.channel, self._version = await owner.connect()
                reason = await self._fetch_until_closed()
            except (OSError, KafkaError) as error:  # TimeoutError is an OSError
                reason = error
            finally:
                self._clean_up()
            if isinstance(reason, TimeoutError):
                self._timeout_s = min(self._timeout_s * 2, owner.timing.max_timeout_s)
            if self.session:
                owner.on_disconnect(reason)
                self._reconnect.clear()
                await wait_for_event(self._reconnect, self._pause_s)
                self._pause_s = min(self._pause_s * 2, owner.timing.max_pause_s)

    async def _fetch_until_closed(self) -> Exception:
        """Fetches until the connection ends. Returns the reason."""
        self._closed = self._loop.create_future()
        self.session.begin()
        self.send()
        while True:
            within_s = self._timeout_s + self._max_wait_s
            done, _ = await asyncio.wait([self._closed], timeout=within_s / 2)
            if done:
                return self._closed.result()
            if self.session.has_request_in_flight and self._loop.time() - self._sent_s > within_s:
                return TimeoutError(f"no response in {within_s:.0f} s")
            if not (self.session.has_request_in_flight or self._retry or self._tasks):
                return TimeoutError("no request is under way")

    def disconnect(self, reason: Exception) -> None:
        """Closes the connection. The next one begins at the present log ends."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(reason)

    def _clean_up(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for handle in (self._send_soon, self._retry, *self._tasks):
            if handle is not None:
                handle.cancel()
        self._send_soon = self._retry = None

    # --- requests

    def send_soon(self) -> None:
        """Sends a request at the end of this iteration of the event loop, so that it names all
        partitions that are added in it.
        """
        if self.channel is not None and self._send_soon is None:
            self._send_soon = self._loop.call_soon(self.send)

    def send(self) -> None:
        self._send_soon = None
        if self.channel is None or (pause_s := self._owner.send_pause_s()) is None:
            return
        now_s = self._loop.time()
        if pause_s > 0:
            self._retry_at(now_s + pause_s)
            return
        try:
            request = self.session.next_request(self._owner.next_request(), now_s, self._owner.max_partition_bytes)
            if self.session.next_retry_s:
                self._retry_at(self.session.next_retry_s)
            if request is None:
                return
            self._sent_s, self._max_wait_s = now_s, request.max_wait_ms / 1000
            correlation_id = self.channel.next_correlation_id()
            frame = write_fetch_request(self._version, correlation_id, self._owner.client_id, request)
            self.channel.send_with_callback(correlation_id, [frame], self._on_response)
        except OSError as reason:
            self.disconnect(reason)

    def _retry_at(self, at_s: float) -> None:
        if self._retry is None or self._retry_at_s > at_s:
            if self._retry is not None:
                self._retry.cancel()
            self._retry, self._retry_at_s = self._loop.call_at(at_s, self._retry_now), at_s

    def _retry_now(self) -> None:
        self._retry = None
        self.session.retry_paused()
        self.send()

    # --- responses

    def _on_response(self, frame: bytearray | Exception) -> None:
        if self.channel is None or not self.session.has_request_in_flight:
            return  # of a connection that was given up
        if isinstance(frame, Exception):
            self.disconnect(frame)
            return
        try:
            response = read_fetch_response(frame)
        except MalformedMessage as reason:
            self.disconnect(ConnectionError(str(reason)))
            return
        if response.error is not ErrorCode.none and response.error not in SESSION_LOST_ERRORS:
            self.disconnect(KafkaError(response.error, f"the broker answers {response.error.name}"))
            return
        self._timeout_s, self._pause_s = self._owner.timing.first_timeout_s, self._owner.timing.first_pause_s
        self._owner.on_response(len(frame))
        for partition, data in self.session.on_response(response):
            self._owner.process(partition, data)
        self.send()


async def list_offset(
    channel: Channel, topic: str, partition: int, timestamp: int, *, replica: int, leader_epoch: int = NO_EPOCH
) -> int:
    """Start (EARLIEST_TIMESTAMP) or end (LATEST_TIMESTAMP) of a log, by ListOffsets up to version
    7; for a consumer (`replica` −1) the end of committed records. Raises KafkaError with the
    broker's error; ConnectionError.
    """
    request = build_list_offsets([(topic, partition)], timestamp, replica=replica, leader_epoch=leader_epoch)
    response = await channel.send(request)
    ((answer,),) = [topic.partitions for topic in response.topics]
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code, f"ListOffsets of {topic}-{partition}")
    return int(answer.offset)
