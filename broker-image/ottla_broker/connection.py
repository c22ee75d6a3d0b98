"""One client's connection: requests in, answers out in the order of the requests.

- Produce requests are pipelined: each is appended when it comes, and its answer may wait for replicas while the next
  is appended. Of all others one at a time is worked on, as Kafka's clients expect.
- While the client does not read its answers, nothing more of what it sent is worked on or read (rule 18): what it
  has not fetched stays on disk.
- While the broker starts, it answers what other brokers ask; what clients ask waits until it is ready, for a while.
- Whatever is wrong with a request costs the connection and one line in the log.
"""

import asyncio
import logging
from asyncio import Future
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, cast

from ottla_broker.api.api_versions import answer as api_versions_answer
from ottla_broker.api.early import may_come_early
from ottla_broker.api.form import Form, refusal
from ottla_broker.api.table import CONTROLLERS, FETCH, PRODUCE, form_of
from ottla_broker.busy_poll import LARGEST_REQUEST, PollCredit
from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.metrics import API_KEY_LIMIT
from ottla_broker.requests.context import (
    Buffers,
    CloseConnection,
    ConnectionState,
    DeferredResponse,
    DelayedFetchResponse,
    RequestContext,
)
from ottla_broker.security.principal import principal_from_certificate
from ottla_broker.wire.codec import API_VERSIONS, RequestHeader, read_request, read_request_header, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.framing import SMALL_FRAME_BYTES, FrameReader
from ottla_broker.wire.message_reader import MalformedMessage

if TYPE_CHECKING:
    from ottla_broker.server import Server

logger = logging.getLogger(__name__)

UNSENT_HIGH_BYTES = 64 * 1024  # unsent bytes from which a connection's work pauses …
UNSENT_LOW_BYTES = 16 * 1024  # … until no more than these are left
HOLD_S = 5.0  # how long a client's request waits for a broker that starts; then the client may try another
MAX_UNANSWERED = 1024  # produce requests whose answers wait for replicas


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: "Server", listener: str) -> None:
        self._server = server
        self._listener = listener
        self._frames = FrameReader(server.scratch, server.limits.request_bytes, server.requests.try_allocate)
        self._queue: deque[bytearray] = deque()  # whole requests that wait for their turn
        self._queued_bytes = 0
        self._replies: deque[Buffers | Future[Buffers]] = deque()  # in order; only while the first of them is not ready
        self._working: Future[Buffers] | None = None  # the one request that is not a produce
        self._writing_paused = False
        self._reading_paused = False
        self._starved = False
        self._early: asyncio.TimerHandle | None = None  # set while a request waits for the broker to be ready
        self._closed = False
        self._finishing = False  # it is closed as soon as what was taken has been answered
        self.unsent = 0  # bytes that the transport had not sent when it was last looked at
        self._held = 0  # bytes that it keeps in memory for that, as counted in the server's pool
        self._last_written = 0
        self._poll_credit = PollCredit()
        self.active_at = 0.0
        self.stuck_since = 0.0  # when unsent bytes last became fewer

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.peer = ConnectionState(
            host, port, self._listener, principal_from_certificate(transport.get_extra_info("peercert"))
        )
        self.active_at = self._server.now()
        self._transport.set_write_buffer_limits(UNSENT_HIGH_BYTES, UNSENT_LOW_BYTES)
        if not self._server.admit(self):
            self._closed = True
            transport.abort()  # type: ignore[attr-defined]  # every socket transport has it

    def connection_lost(self, reason: Exception | None) -> None:
        self._closed = True
        if self._early is not None:
            self._early.cancel()
        self._server.leave(self)
        self._server.requests.remove_waiter(self._memory_is_back)
        self._server.responses.remove_waiter(self._room_is_back)
        self._server.requests.release(
            self._frames.claimed_bytes + sum(len(f) for f in self._queue if len(f) > SMALL_FRAME_BYTES)
        )
        self._queue.clear()
        self._count_held(0)
        for reply in self._replies:
            if isinstance(reply, Future) and not isinstance(reply, asyncio.Task):
                reply.cancel()  # a fetch that waits; tasks run to their end
        self._replies.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self.active_at = self._server.now()
        if self._server.vigil is not None:
            self._server.vigil.on_request(self._poll_credit)
        try:
            for frame in self._frames.buffer_updated(count):
                self._take(frame)
        except MalformedMessage as reason:
            self._hang_up(str(reason))
            return
        if self._frames.stalled and not self._closed:
            self._server.requests.add_waiter(self._memory_is_back)
            self._consider_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.stuck_since = self._server.now()
        self.unsent = self._transport.get_write_buffer_size()
        # A reply that was sent in part is kept whole until its last byte has gone.
        self._count_held(max(self.unsent, self._last_written))

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.unsent = 0
        self._count_held(0)
        self._go_on()

    # --- requests, in order

    def _take(self, frame: bytearray) -> None:
        if self._queue or self._blocked():
            self._queue.append(frame)
            self._queued_bytes += len(frame)
            self._consider_reading()
            if self.peer.is_follower and isinstance(self._working, DelayedFetchResponse):
                self._working.force_complete()  # a follower that asks for more waits no longer for what it asked before
        elif not self._closed:
            self._serve(frame)

    def _blocked(self) -> bool:
        return (
            self._working is not None
            or self._finishing
            or self._writing_paused
            or self._starved
            or self._early is not None
            or len(self._replies) >= MAX_UNANSWERED
        )

    def _go_on(self) -> None:
        while self._queue and not self._blocked() and not self._closed:
            frame = self._queue.popleft()
            self._queued_bytes -= len(frame)
            self._serve(frame)
        if not self._closed:
            self._consider_reading()

    def _consider_reading(self) -> None:
        """Reads only while there is nothing to catch up with."""
        pause = (
            self._writing_paused
            or self._finishing
            or self._frames.stalled
            or (bool(self._queue) and self._queued_bytes >= self._server.limits.queued_bytes)
            or len(self._queue) >= MAX_UNANSWERED
        )
        if pause and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        elif not pause and self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _serve(self, frame: bytearray) -> None:
        try:
            header = read_request_header(frame)
            if not self._server.broker.ready and not may_come_early(frame, header):
                self._hold(frame)
                return
            if header.api_key == FETCH and self._server.responses.is_exhausted and not self.peer.is_follower:
                self._starve(frame)
                return
            self._start(frame, header)
        except (MalformedMessage, CloseConnection) as reason:
            self._hang_up(str(reason))
        if len(frame) > SMALL_FRAME_BYTES:
            self._server.requests.release(len(frame))

    def _start(self, frame: bytearray, header: RequestHeader) -> None:
        key, version = header.api_key, header.version
        if 0 <= key < API_KEY_LIMIT:
            self._server.served[key] += 1
        handler = self._server.hot_handler(key, version)
        if handler is not None:
            context = RequestContext(self._server.broker, self.peer, version, header.client_id, self._server.authorizer)
            reply = handler(context, frame, header, self._server.room())
            if isinstance(reply, Future):
                self._wait_for(reply, pipelined=key == PRODUCE)
            elif reply is not None:
                self._answer(reply)
                if key == PRODUCE and len(frame) <= LARGEST_REQUEST and self.idle and self._server.vigil is not None:
                    self._server.vigil.on_response(self._poll_credit)
            return
        form = form_of(key, version)
        if form is not None:
            request = read_request(bytes(frame), header, form.request)
            context = RequestContext(self._server.broker, self.peer, version, header.client_id, self._server.authorizer)
            work = self._handle(form, context, header, request)
            if key in CONTROLLERS and self._server.broker.controller is None:
                work = self._relay(frame, work)
            self._wait_for(self._server.run(work), pipelined=False)
        elif key == API_VERSIONS:  # rule 16: a newer client learns from version 0 what we speak
            refused = api_versions_answer(ErrorCode.unsupported_version)
            self._answer([write_response(API_VERSIONS, 0, header.correlation_id, refused)])
        else:
            raise MalformedMessage(f"no such request: API key {key}, version {version}")

    async def _handle(self, form: Form, context: RequestContext, header: RequestHeader, request: object) -> Buffers:
        try:
            response = await form.handle(context, request)
        except KafkaError as reason:
            response = refusal(form.response, reason)
        return [write_response(header.api_key, header.version, header.correlation_id, response)]

    async def _relay(self, frame: bytearray, here: Coroutine[None, None, Buffers]) -> Buffers:
        """The controller's answer; where none is to be had, that of this broker, which says so in its own way for each request."""
        try:
            if self.peer.software_name == FORWARDING_SOFTWARE_NAME:
                raise CloseConnection("a request for the controller was relayed to this broker, which is none")
            answer = await self._server.broker.controller_channel.forward_frame(frame)
        except KafkaError:
            answer = None
        except BaseException:
            here.close()
            raise
        if answer is None:
            return await here
        here.close()
        return [answer]

    # --- answers, in order

    def _answer(self, reply: Buffers) -> None:
        if self._replies:
            self._replies.append(reply)
        else:
            self._write(reply)

    def _wait_for(self, reply: Future[Buffers], *, pipelined: bool) -> None:
        self._replies.append(reply)
        if not pipelined:
            self._working = reply
        if isinstance(reply, DeferredResponse):
            reply.on_complete = self._ready
        else:
            reply.add_done_callback(self._ready)

    def _ready(self, reply: Future[Buffers]) -> None:
        if self._working is reply:
            self._working = None
        if reply.cancelled() or self._closed:
            if not reply.cancelled():
                reply.exception()  # looked at: nobody is left to tell
            return
        if (failure := reply.exception()) is not None:
            if isinstance(failure, CloseConnection | KafkaError):
                self._hang_up(str(failure))
            else:
                logger.error("a request of %s:%d failed", self.peer.host, self.peer.port, exc_info=failure)
                self._transport.abort()
            return
        while self._replies:
            first = self._replies[0]
            if isinstance(first, Future):
                if not first.done() or first.cancelled() or first.exception() is not None:
                    break
                first = first.result()
            self._replies.popleft()
            self._write(first)
        if self._finishing:
            self._close_when_answered()
        else:
            self._go_on()

    def _write(self, buffers: Buffers) -> None:
        if len(buffers) == 1:
            self._last_written = len(buffers[0])
            self._transport.write(buffers[0])
        else:
            self._last_written = sum(map(len, buffers))
            self._transport.writelines(buffers)

    # --- before the broker is ready

    def _hold(self, frame: bytearray) -> None:
        self._queue.appendleft(frame)
        self._queued_bytes += len(frame)
        self._early = asyncio.get_running_loop().call_later(HOLD_S, self.close, "the broker is still starting")

    def go_on(self) -> None:
        """The broker is ready."""
        if self._early is not None:
            self._early.cancel()
            self._early = None
            self._go_on()

    # --- memory

    def _count_held(self, held: int) -> None:
        change, self._held = held - self._held, held
        if change > 0:
            self._server.responses.count_allocated(change)
        elif change < 0:
            self._server.responses.release(-change)

    def recount_unsent(self) -> None:
        """Looks whether the reader has taken some of what was left."""
        unsent = self._transport.get_write_buffer_size()
        if unsent < self.unsent:
            self.stuck_since = self._server.now()
            self.unsent = unsent

    def _starve(self, frame: bytearray) -> None:
        """A fetch waits, unread from disk, until slow readers have taken some of what was fetched for them."""
        self._starved = True
        self._queue.appendleft(frame)
        self._queued_bytes += len(frame)
        self._server.responses.add_waiter(self._room_is_back)
        self._server.look_for_stuck_readers()

    def _room_is_back(self) -> None:
        self._starved = False
        self._go_on()

    def _memory_is_back(self) -> None:
        self._frames.resume()
        if self._frames.stalled:
            self._server.requests.add_waiter(self._memory_is_back)
        else:
            self._consider_reading()

    # --- the end

    @property
    def idle(self) -> bool:
        return not self._replies and not self._queue

    def finish(self) -> None:
        """Takes nothing more, answers what was taken, and closes: a producer that does not hear of what was appended would send it again."""
        if self._closed or self._transport.is_closing():
            return
        self._finishing = True
        self._queue.clear()
        self._reading_paused = True
        self._transport.pause_reading()
        if isinstance(self._working, DelayedFetchResponse):
            self._working.force_complete()
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if not self._replies:
            self._transport.close()

    def close(self, why: str) -> None:
        logger.info("closing the connection of %s:%d: %s", self.peer.host, self.peer.port, why)
        self._transport.abort()

    def _hang_up(self, why: str) -> None:
        if not self._closed:
            self._closed = True
            logger.warning("closing the connection of %s:%d: %s", self.peer.host, self.peer.port, why)
            self._transport.abort()
