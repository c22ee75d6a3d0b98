"""The responses of one connection, written in the order of its requests.

Clients match responses to requests by their order, so a response that is ready waits for earlier
ones. Most responses are ready at once and find the queue empty: they go to the transport directly.
"""

import asyncio
from asyncio import Future
from collections.abc import Iterator
from typing import Final

from ottla_broker.group_turn import GroupTurn
from ottla_broker.request_times import RequestTimes, ServedRequest
from ottla_broker.requests.reply import Buffers
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.unsent_responses import PAUSE_WRITING_BYTES, RESUME_WRITING_BYTES, UnsentResponses
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import Buffer

SENT_TOGETHER: Final = frozenset({int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP), int(ApiKey.HEARTBEAT)})
"""Requests whose responses are sent together."""
SENT_TOGETHER_IF_READY: Final = SENT_TOGETHER | {int(ApiKey.CONSUMER_GROUP_HEARTBEAT)}
"""Requests whose responses are sent together if they are ready at once. In the consumer protocol
those that have waited are sent alone: batches of them delay the first heartbeats of a new group.
"""


class WaitingResponse:
    """A response that is not ready yet, and when its request was served. `trace`: None unless it is
    traced.
    """

    __slots__ = ("request", "response", "trace")

    def __init__(self, response: Future[Buffers], request: ServedRequest, trace: RequestTrace | None = None) -> None:
        self.response = response
        self.request = request
        self.trace = trace


class ResponseQueue:
    """`waiting`: the responses that are not written, in order; empty unless the first is not ready.
    `last_api`: the API of the current or last response, set before `send`, except for requests that
    `produce_turn` has joined; `send` times are counted for it. `_delayed`: a response that
    `group_turn` sends, unless another one of this connection, or the end of the connection, comes
    before.
    """

    __slots__ = ("_delayed", "_times", "_transport", "_turn", "_unread_since_s", "_unsent", "last_api", "waiting")

    _transport: asyncio.Transport

    def __init__(self, times: RequestTimes, unsent: UnsentResponses, turn: GroupTurn) -> None:
        self._delayed: Buffers | None = None
        self._times = times
        self._turn = turn
        self._unsent = unsent
        self._unread_since_s = 0.0
        self.waiting: list[Buffers | WaitingResponse] = []
        self.last_api = 0

    def attach(self, transport: asyncio.Transport) -> None:
        """Called once, before the first response."""
        self._transport = transport
        transport.set_write_buffer_limits(PAUSE_WRITING_BYTES, RESUME_WRITING_BYTES)

    def send(self, response: Buffers) -> None:
        """Writes the response, after those that wait."""
        if self.waiting:
            self.waiting.append(response)
        elif self.last_api in SENT_TOGETHER_IF_READY and not self._turn.is_alone:
            self._write_with_others(response)
        else:
            self._write(response)

    def send_buffer(self, response: Buffer) -> None:
        """`send` of a response in one piece."""
        if self.waiting:
            self.waiting.append((response,))
        else:
            if self._delayed is not None:
                self.flush()
            self._unsent.last_written = len(response)
            self._transport.write(response)

    def send_when_ready(
        self, response: Future[Buffers], request: ServedRequest, trace: RequestTrace | None = None
    ) -> None:
        """Keeps the response's place. `send_ready` must be called once it is done."""
        self.waiting.append(WaitingResponse(response, request, trace))

    def send_ready(self) -> None:
        """Writes responses up to the first that is not ready or has failed."""
        while self.waiting:
            first = self.waiting[0]
            if not isinstance(first, WaitingResponse):
                self.waiting.pop(0)
                self._write(first)
                continue
            future, request, trace = first.response, first.request, first.trace
            if not future.done() or future.cancelled() or future.exception() is not None:
                return
            self.last_api = request.api
            self._times.observe_deferred(request)
            self.waiting.pop(0)
            if request.api in SENT_TOGETHER:
                self._write_with_others(future.result())
            else:
                self._write(future.result())
            if trace is not None:
                trace.end(request.queue_s, request.began_s, request.handled_s, has_waited=True)

    def requests(self) -> Iterator[ServedRequest]:
        """The requests that wait for replicas, records, members or the controller."""
        return (one.request for one in self.waiting if isinstance(one, WaitingResponse))

    def on_writing_paused(self) -> None:
        """Called when the transport's buffer is full."""
        self._unread_since_s = self._times.clock()
        self._unsent.begin(self._transport.get_write_buffer_size())

    def on_writing_resumed(self) -> None:
        self._times.observe_send(self.last_api, self._times.clock() - self._unread_since_s)
        self._unsent.end()

    def discard(self) -> None:
        """Called when the connection is lost. Cancels the responses that wait, of Fetch, Produce,
        JoinGroup and others. The handlers of responses that are tasks run to their end.
        """
        self._unsent.end()
        self._delayed = None
        for one in self.waiting:
            if isinstance(one, WaitingResponse) and not isinstance(one.response, asyncio.Task):
                one.response.cancel()  # what it waits for goes on without it; tasks run to their end
        self.waiting.clear()

    def flush(self) -> None:
        """Sends the response that waits for those of other connections."""
        if self._delayed is not None:
            delayed, self._delayed = self._delayed, None
            self._write(delayed)

    def _write_with_others(self, buffers: Buffers) -> None:
        self.flush()
        self._delayed = buffers
        self._turn.add_response(self)

    def _write(self, buffers: Buffers) -> None:
        if self._delayed is not None:
            self.flush()
        if len(buffers) == 1:
            self._unsent.last_written = len(buffers[0])
            self._transport.write(buffers[0])
        else:
            self._unsent.last_written = sum(map(len, buffers))
            self._transport.writelines(buffers)
