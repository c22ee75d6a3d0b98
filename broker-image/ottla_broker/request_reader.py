"""Reads the requests of one connection from its socket into frames, with a receive buffer that fits
their size.

It reads no more while the requests that wait for their turn reach a bound, while the memory for
requests is exhausted, and while the connection is muted for a reason of `STOPS_READING`.
"""

import asyncio
from typing import Any, Final

from ottla_broker.busy_poll import PollCredit
from ottla_broker.connection_services import ConnectionServices
from ottla_broker.mute_state import STOPS_READING, MuteState
from ottla_broker.receive_buffer import LARGE_REQUEST_BYTES, adapt, make_small
from ottla_broker.wire.framing import SMALL_FRAME_BYTES
from ottla_broker.wire.message_reader import MalformedMessage

MAX_UNANSWERED: Final = 1024
"""Requests of one connection that wait for their turn, and Produce requests whose responses wait
for replicas.
"""


class RequestReader(asyncio.BufferedProtocol):
    """`active_at_s`: when bytes last arrived, by the loop's clock."""

    _transport: asyncio.Transport

    def __init__(self, services: "ConnectionServices[Any]") -> None:
        self._services = services
        self._frames = services.new_frames()
        self._queue: list[tuple[bytearray, float]] = []  # requests that wait for their turn, and since when
        self._queued_bytes = 0
        self._muted = MuteState()
        self._is_reading_paused = False
        self._is_closed = False
        self._large_in_row = 0  # large requests since the last smaller one, if the receive buffer adapts to them
        self._poll_credit = PollCredit()
        self.active_at_s = 0.0

    def _receive(self, frame: bytearray) -> None:
        """Serves the request, or queues it."""
        raise NotImplementedError

    def _close_for_error(self, why: str) -> None:
        raise NotImplementedError

    def _begin_receiving(self) -> None:
        if self._services.limits.adapts_receive_buffer:
            make_small(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, count: int) -> None:
        services = self._services
        self.active_at_s = services.clock()
        if services.busy_poll is not None and self._poll_credit.is_counting:
            services.busy_poll.on_request(self._poll_credit)
        try:
            for frame in self._frames.buffer_updated(count):
                if len(frame) >= LARGE_REQUEST_BYTES or self._large_in_row:
                    self._adapt_receive_buffer(len(frame))
                self._receive(frame)
        except MalformedMessage as reason:
            self._close_for_error(str(reason))
            return
        if self._frames.is_stalled and not self._is_closed:
            services.requests.add_waiter(self._resume_receiving)
            self._pause_or_resume_reading()

    def _adapt_receive_buffer(self, request_bytes: int) -> None:
        if self._services.limits.adapts_receive_buffer:
            self._large_in_row = adapt(self._transport, self._large_in_row, request_bytes)

    def eof_received(self) -> bool:
        return False

    def _put_back(self, frame: bytearray, received_s: float) -> None:
        """Queues a request again, before all others."""
        self._queue.insert(0, (frame, received_s))
        self._queued_bytes += len(frame)

    def _pause_or_resume_reading(self) -> None:
        """Reads while the requests that wait are below their limits and nothing forbids it."""
        pause = (
            self._muted.reasons & STOPS_READING != 0
            or self._frames.is_stalled
            or (bool(self._queue) and self._queued_bytes >= self._services.limits.queued_bytes)
            or len(self._queue) >= MAX_UNANSWERED
        )
        if pause and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        elif not pause and self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _resume_receiving(self) -> None:
        """Called when memory for requests is free again."""
        self._frames.resume()
        if self._frames.is_stalled:
            self._services.requests.add_waiter(self._resume_receiving)
        else:
            self._pause_or_resume_reading()

    def _refuse(self, close_after_s: float) -> None:
        """Closes the connection after `close_after_s`, because a client would reconnect at once."""
        if not close_after_s:
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._muted.throttle(close_after_s, self._transport.abort)

    def _release_requests(self) -> None:
        """Discards the requests that wait, and returns the memory of all that were read."""
        requests = self._services.requests
        requests.remove_waiter(self._resume_receiving)
        requests.release(self._frames.claimed_bytes + sum(len(f) for f, _ in self._queue if len(f) > SMALL_FRAME_BYTES))
        self._queue.clear()
