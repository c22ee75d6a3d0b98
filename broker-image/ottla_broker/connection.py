"""One client's connection: requests in, responses out in the order of the requests.

- Produce requests are pipelined: each is appended in the turn of the event loop in which it arrives
  (small ones of all connections together: `ProduceTurn`), and its response may wait for replicas
  while the next is appended. Other requests are served one at a time, as Kafka's clients expect.
- A heartbeat that repeats the last one, and does not come alone, is served at the end of its turn,
  or of a later one (`GroupTurn`), and further requests of its connection after it.
- While the client does not read its responses, the broker neither reads nor serves its requests
  (rule 18): records that it has not fetched stay on disk.
- While the broker starts, it serves other brokers. Requests of clients wait for up to HOLD_S until
  it is ready.
- A malformed request closes its connection, with one line in the log.

`MuteState` has the reasons for which no request is served, `ResponseQueue` the order of responses.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Iterator
from typing import Final, cast

from ottla_broker.busy_poll import MAX_REQUEST_BYTES, BusyPoll, PollCredit
from ottla_broker.connection_login import ConnectionLogin
from ottla_broker.connection_services import ConnectionServices
from ottla_broker.mute_state import (
    BROKER_STARTING,
    FINISHING,
    NO_RESPONSE_MEMORY,
    STOPS_READING,
    THROTTLED,
    UNREAD_RESPONSES,
    MuteState,
)
from ottla_broker.receive_buffer import LARGE_REQUEST_BYTES, adapt_receive_buffer, make_receive_buffer_small
from ottla_broker.request_times import FOLLOWER_FETCH, ServedRequest
from ottla_broker.requests.context import CloseConnection, ConnectionState
from ottla_broker.requests.reply import Buffers, DeferredResponse, DelayedFetchResponse, OrderedResponse, Reply
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.response_queue import ResponseQueue
from ottla_broker.same_turn import SameTurnFuture
from ottla_broker.security.principal_mapping import NoMatchingRule
from ottla_broker.unsent_responses import UnsentResponses
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.framing import SMALL_FRAME_BYTES
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.produce import expects_no_response
from ottla_broker.wire.produce_template import ProduceTemplates
from ottla_broker.wire.request_header import read_request_header

logger = logging.getLogger(__name__)

PRODUCE: Final = int(ApiKey.PRODUCE)  # members of an enum are slow to look up
FETCH: Final = int(ApiKey.FETCH)
HOLD_S: Final = 5.0
"""How long a client's request waits for a starting broker. Then its connection closes, and the
client may try another broker.
"""
MAX_UNANSWERED: Final = 64
"""Maximum number of requests of one connection whose responses wait, such as Produce requests for
replicas, and maximum number of those that wait for their turn. What a busy broker does not read
waits in its producer, which then sends larger batches: with 1,024 the median latency of three
brokers under load (bench line `latency-under-load-50-p50`) is twice as high.
"""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one client's socket, or of the TLS on it. `state`: what handlers know of the
    client; set when the transport has connected. `active_at_s`: when bytes last arrived, by the
    loop's clock.
    """

    state: ConnectionState
    _transport: asyncio.Transport

    def __init__(self, services: "ConnectionServices[Connection]", listener: str) -> None:
        self._services = services
        self._dispatcher = services.dispatcher
        self._times = services.dispatcher.request_times
        self._listener = listener
        self._frames = services.new_frames()
        self._queue: list[tuple[bytearray, float]] = []  # requests that wait for their turn, and since when
        self._queued_bytes = 0
        self._working: Future[Buffers] | None = None  # of the one request in progress that is not pipelined
        self._templates = ProduceTemplates(services.templates)
        self._heartbeat: bytearray | None = None  # served at the end of this turn
        self._joined_count = 0  # requests in the turn that is not completed yet
        self._muted = MuteState()
        self._is_reading_paused = False
        self._login = ConnectionLogin(self._frames, services.limits.request_bytes, self.close)
        self._is_closed = False
        self._large_in_row = 0  # large requests since the last smaller one, if the receive buffer adapts to them
        self._poll_credit = PollCredit()
        self.unsent = UnsentResponses(services.response_memory, services.clock)
        self._responses = ResponseQueue(self._times, self.unsent, services.group_turn)
        self.active_at_s = 0.0

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.state = ConnectionState(host, port, self._listener, mute=self._mute)
        services = self._services
        if services.limits.adapts_receive_buffer:
            make_receive_buffer_small(self._transport)
        try:
            self._login.begin(self.state, transport, services.sasl_sessions, services.principal_mappers)
        except NoMatchingRule as reason:
            self._close_for_error(str(reason))
            return
        self.active_at_s = self._services.clock()
        self._responses.attach(self._transport)
        if (close_after_s := self._services.on_open(self)) is not None:
            self._is_closed = True
            self._refuse(close_after_s)

    def connection_lost(self, reason: Exception | None) -> None:
        if self._queue and not self._is_closed:
            self._serve_unacknowledged()
        self._is_closed = True
        self._login.cancel()
        self._muted.cancel_timers()
        self._services.on_close(self)
        requests, responses = self._services.request_memory, self._services.response_memory
        requests.remove_waiter(self._resume_receiving)
        responses.remove_waiter(self._resume_fetching)
        requests.release(self._frames.claimed_bytes + sum(len(f) for f, _ in self._queue if len(f) > SMALL_FRAME_BYTES))
        self._queue.clear()
        self._responses.discard()

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
            services.request_memory.add_waiter(self._resume_receiving)
            self._pause_or_resume_reading()

    def _adapt_receive_buffer(self, request_bytes: int) -> None:
        if self._services.limits.adapts_receive_buffer:
            self._large_in_row = adapt_receive_buffer(self._transport, self._large_in_row, request_bytes)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._muted.mute(UNREAD_RESPONSES)
        self._responses.on_writing_paused()

    def resume_writing(self) -> None:
        self._muted.unmute(UNREAD_RESPONSES)
        self._responses.on_writing_resumed()
        self._serve_queued()

    # Requests, in order

    def _receive(self, frame: bytearray) -> None:
        if self._queue or self._is_blocked():
            self._queue.append((frame, self._times.clock()))
            self._queued_bytes += len(frame)
            self._pause_or_resume_reading()
            if self.state.is_follower and isinstance(self._working, DelayedFetchResponse):
                self._working.force_complete()  # a follower's next fetch ends the wait of its last
        elif not self._is_closed:
            self._serve(frame)

    def _serve_unacknowledged(self) -> None:
        """Serves the Produce requests with acks=0 that wait for their turn: their producer counts
        them as sent.
        """
        requests, self._queue = self._queue, []
        for frame, received_s in requests:
            if expects_no_response(frame):
                self._serve_alone(frame, received_s)
            else:
                self._queue.append((frame, received_s))

    def _is_blocked(self) -> bool:
        if self._working is not None or self._muted.reasons or self._heartbeat is not None:
            return True
        if self._joined_count and self._services.produce_turn.is_completing:
            return True
        return len(self._responses.waiting) >= MAX_UNANSWERED

    def _serve_queued(self) -> None:
        while self._queue and not self._is_blocked() and not self._is_closed:
            frame, received_s = self._queue.pop(0)
            self._queued_bytes -= len(frame)
            self._serve(frame, received_s)
        if not self._is_closed:
            self._pause_or_resume_reading()

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

    def _serve(self, frame: bytearray, received_s: float | None = None) -> None:
        """Serves the request, or adds it to those that are served later in this turn. `received_s`:
        None if the request was received in this turn of the loop.
        """
        services = self._services
        turn = services.produce_turn
        trace = None if services.sample_trace is None else services.sample_trace(frame, self.state)
        if trace is None and (found := self._templates.match(frame)) is not None and turn.accepts(self.state):
            self._joined_count += 1
            turn.add(self, frame, *found)
            return
        if self._joined_count:
            turn.complete()  # before a request that may depend on what this connection sent before
        is_heartbeat = False
        if trace is None and (last := self.state.last_heartbeat) is not None:
            is_heartbeat = last.is_repeated_by(frame)
            if received_s is None and not services.group_turn.receive(self) and is_heartbeat:
                self._heartbeat = frame
                services.group_turn.add_heartbeat(self)
                return
        self._serve_alone(frame, received_s, trace, is_heartbeat=is_heartbeat)

    def serve_heartbeat(self, received_s: float) -> None:
        """Serves the heartbeat that `group_turn` has put off."""
        frame, self._heartbeat = self._heartbeat, None
        if frame is None or self._is_closed:
            return
        try:
            self._serve_alone(frame, received_s, is_heartbeat=True)
            if self._queue or self._muted.reasons:
                self._serve_queued_or_finish()
        except Exception:  # a defect, which must not keep other connections waiting
            logger.exception("request from %s:%d failed", self.state.host, self.state.port)
            self._transport.abort()

    def _serve_alone(
        self,
        frame: bytearray,
        received_s: float | None = None,
        trace: RequestTrace | None = None,
        *,
        is_heartbeat: bool = False,
    ) -> None:
        """Serves the request now. `is_heartbeat`: it repeats the last heartbeat of this
        connection.
        """
        services = self._services
        times = self._times
        began_s = times.clock()
        queue_s = 0.0 if received_s is None else began_s - received_s
        try:
            if self.state.sasl is not None and self.state.sasl.expects_bare_tokens:
                reply = self._dispatcher.authenticate(frame, self.state, self.state.sasl)
                login = ServedRequest(ApiKey.SASL_AUTHENTICATE, queue_s, began_s, times.clock())
                self._send_when_done(cast("Future[Buffers]", reply), login, pipelined=False)
                return
            key, reply = FETCH, None
            if not is_heartbeat:
                reply = self._repeat_fetch(frame, trace)
            elif (last := self.state.last_heartbeat) is not None:
                key, reply = last.key, self._dispatcher.repeat_heartbeat(frame, self.state)
            if reply is None:
                header = read_request_header(frame)
                key = header.api_key
                if self._dispatcher.must_wait_for_start(frame, header, self._listener):
                    self._hold(frame, began_s - queue_s)
                    return
                if key == FETCH and services.response_memory.is_exhausted and not self.state.is_follower:
                    self._wait_for_response_memory(frame, began_s - queue_s)
                    return
                max_bytes = services.max_response_bytes() if key == FETCH else 0  # the others do not read it
                reply = self._dispatcher.dispatch(frame, header, self.state, max_bytes, trace)
                if key == PRODUCE:
                    self._templates.learn(frame, header)
            api = FOLLOWER_FETCH if key == FETCH and self.state.is_follower else key
            handled_s = times.clock()
            if isinstance(reply, Future):
                request = ServedRequest(api, queue_s, began_s, handled_s)
                pipelined = key == PRODUCE and not isinstance(reply, OrderedResponse)
                self._send_when_done(reply, request, pipelined=pipelined, trace=trace)
            else:
                times.observe(api, queue_s, handled_s - began_s)
                self._responses.last_api = api
            if reply is not None and not isinstance(reply, Future):
                self._responses.send(reply)
                if services.busy_poll is not None and key == PRODUCE:
                    self._earn_busy_poll(services.busy_poll, frame)
            if trace is not None and not isinstance(reply, Future):
                trace.end(queue_s, began_s, handled_s, has_waited=False)
        except (MalformedMessage, CloseConnection) as reason:
            self._close_for_error(str(reason))
        if len(frame) > SMALL_FRAME_BYTES:
            services.request_memory.release(len(frame))

    def _repeat_fetch(self, frame: bytearray, trace: RequestTrace | None) -> Reply:
        services = self._services
        if self.state.last_fetch is None or trace is not None or services.response_memory.is_exhausted:
            return None
        return self._dispatcher.repeat_fetch(frame, self.state, services.max_response_bytes())

    def _earn_busy_poll(self, busy_poll: BusyPoll, frame: bytearray) -> None:
        if len(frame) <= MAX_REQUEST_BYTES and self.is_idle:
            busy_poll.on_response(self._poll_credit)

    # Called by `produce_turn`, once for each request that has joined it

    def send_joined(self, response: bytearray, *, may_poll: bool) -> None:
        """Answers a request whose records are appended."""
        self._joined_count -= 1
        if self._is_closed:
            return
        self._responses.send_buffer(response)
        if may_poll and self._services.busy_poll is not None and self.is_idle:
            self._services.busy_poll.on_response(self._poll_credit)
        if self._queue or self._muted.reasons:
            self._serve_queued_or_finish()

    def send_joined_later(self, response: DeferredResponse) -> None:
        """Answers a request whose records are appended and not replicated yet."""
        self._joined_count -= 1
        if self._is_closed:
            response.cancel()
        else:
            turn = self._services.produce_turn
            handled_s = self._times.clock()
            request = ServedRequest(PRODUCE, turn.queue_s, turn.began_s, handled_s)
            self._send_when_done(response, request, pipelined=True)

    def serve_unjoined(self, frame: bytearray) -> None:
        """Serves a request that the turn could not join."""
        self._joined_count -= 1
        if not self._is_closed:
            self._serve_alone(frame)
            self._serve_queued_or_finish()

    # Responses that are not ready at once

    def _send_when_done(
        self, reply: Future[Buffers], request: ServedRequest, *, pipelined: bool, trace: RequestTrace | None = None
    ) -> None:
        self._responses.send_when_ready(reply, request, trace)
        if not pipelined:
            self._working = reply
        if isinstance(reply, SameTurnFuture):
            reply.on_complete = self._send_completed
        else:
            reply.add_done_callback(self._send_completed)

    def _send_completed(self, reply: Future[Buffers]) -> None:
        if self._working is reply:
            self._working = None
        if reply.cancelled() or self._is_closed:
            if not reply.cancelled():
                reply.exception()  # retrieved, or asyncio would log it: there is no client to send it to
            return
        if (failure := reply.exception()) is not None:
            if isinstance(failure, CloseConnection | KafkaError):
                self._close_for_error(str(failure))
            else:
                logger.error("request from %s:%d failed", self.state.host, self.state.port, exc_info=failure)
                self._transport.abort()
            return
        self._responses.send_ready()
        if self.state.sasl is not None and not self._login.follow(self.state.sasl):
            self.finish()
        self._serve_queued_or_finish()

    def _serve_queued_or_finish(self) -> None:
        if self._muted.reasons & FINISHING:
            self._close_when_answered()
        else:
            self._serve_queued()

    # Reasons to serve no more requests for now

    def _hold(self, frame: bytearray, received_s: float) -> None:
        self._put_back(frame, received_s)
        self._muted.wait_for_start(HOLD_S, lambda: self.close("the broker is still starting"))

    def release_hold(self) -> None:
        """Serves the held request: the broker is ready."""
        if self._muted.reasons & BROKER_STARTING:
            self._muted.end_wait_for_start()
            self._serve_queued()

    def _put_back(self, frame: bytearray, received_s: float) -> None:
        """Queues a request again, before all others."""
        self._queue.insert(0, (frame, received_s))
        self._queued_bytes += len(frame)

    def _refuse(self, close_after_s: float) -> None:
        """Closes the connection after `close_after_s`; 0: at once. A client whose connection is
        closed at once reconnects at once.
        """
        if not close_after_s:
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._muted.throttle(close_after_s, self._transport.abort)

    def _mute(self, seconds: float) -> None:
        """Serves and reads no requests for some seconds: the client exceeds a quota, or the
        connection is above the rate of new connections.
        """
        if not self._is_closed:
            self._muted.throttle(seconds, self._unmute)
            self._pause_or_resume_reading()

    def _unmute(self) -> None:
        self._muted.end_throttle()
        self.active_at_s = self._services.clock()
        self._serve_queued()

    def _wait_for_response_memory(self, frame: bytearray, received_s: float) -> None:
        """Lets a fetch wait, its records unread from disk, until slow clients have read some of
        their responses.
        """
        self._put_back(frame, received_s)
        self._muted.mute(NO_RESPONSE_MEMORY)
        self._services.response_memory.add_waiter(self._resume_fetching)
        self._services.on_response_memory_exhausted()

    def _resume_fetching(self) -> None:
        self._muted.unmute(NO_RESPONSE_MEMORY)
        self._serve_queued()

    def _resume_receiving(self) -> None:
        self._frames.resume()
        if self._frames.is_stalled:
            self._services.request_memory.add_waiter(self._resume_receiving)
        else:
            self._pause_or_resume_reading()

    # For the server

    def recount_unsent(self) -> None:
        """Notes whether the client has read some of what was unsent."""
        self.unsent.recount(self._transport.get_write_buffer_size())

    def waiting_requests(self) -> Iterator[ServedRequest]:
        """The requests that wait for replicas, records, members or the controller."""
        return self._responses.requests()

    @property
    def is_idle(self) -> bool:
        return (
            not self._responses.waiting
            and not self._queue
            and not self._joined_count
            and not self._muted.reasons & THROTTLED
        )

    def finish(self) -> None:
        """Answers the requests in progress and closes; drops requests that wait for their turn. A
        producer whose appended records were not answered would send them again."""
        if self._is_closed or self._transport.is_closing():
            return
        self._muted.mute(FINISHING)
        self._queue.clear()
        self._is_reading_paused = True
        self._transport.pause_reading()
        if self._joined_count:
            self._services.produce_turn.complete()
        if isinstance(self._working, DelayedFetchResponse):
            self._working.force_complete()
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if not self._responses.waiting and not self._joined_count and self._heartbeat is None:
            self._responses.flush()
            self._transport.close()

    def close(self, why: str, level: int = logging.INFO) -> None:
        """Closes the connection at once and logs why. Requests in progress get no response."""
        logger.log(level, "closing connection from %s:%d: %s", self.state.host, self.state.port, why)
        self._responses.flush()
        self._transport.abort()

    def _close_for_error(self, why: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.close(why, logging.WARNING)
