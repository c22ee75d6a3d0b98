"""Requests of groups that arrive in one turn of the event loop. When a group rebalances, those of
its members arrive many at a time.

- Heartbeats that repeat the last one of their connection are served after everything else that has
  been received. If they are many, they get a fifth of the time, and the loop looks at sockets in
  between. So a heartbeat that arrives shortly before a JoinGroup already tells its member of the
  rebalance, which the member would otherwise learn with its next heartbeat.
- A request that comes alone is served at once, and its response sent at once: a heartbeat takes 13
  µs of processor time then, and would take 15 at the end of the turn.
- Responses are sent together. One that is sent alone wakes its client, which has read it before the
  next one is sent. Then each response costs both sides a wake-up.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

MAX_UNSENT: Final = 32
"""With more unsent responses, clients would wait while the broker serves the rest."""
HEARTBEATS_SHARE: Final = 0.25
"""Time in which heartbeats are served, as a share of the time that everything else has taken."""
ALONE_S: Final = 0.001
"""A request comes alone if no other connection of a member has sent one for this time."""


class MemberConnection(Protocol):
    def serve_heartbeat(self, received_s: float) -> None:
        """Called at the end of a turn. `received_s`: when the heartbeat came. Raises nothing."""
        ...


class UnsentResponse(Protocol):
    def flush(self) -> None:
        """Sends the response unless it has been sent since it was added."""
        ...


class GroupTurn:
    """One per broker. `clock`: that of `RequestTimes`. `is_alone`: the request that is being served
    has come alone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._is_scheduled = False
        self._scheduled_s = 0.0
        self.is_alone = False
        self._last: MemberConnection | None = None  # the last that sent a request, at `_last_s`
        self._last_s = 0.0
        self._heartbeats: deque[tuple[MemberConnection, float]] = deque()
        self._unsent: list[UnsentResponse] = []

    def receive(self, connection: MemberConnection) -> bool:
        """Called with each request of a member's connection. True if it comes alone: nothing waits
        for the end of the turn, and the last request is of the same connection or older than
        ALONE_S.
        """
        now_s = self._clock()
        self.is_alone = not self._is_scheduled and (connection is self._last or now_s - self._last_s > ALONE_S)
        self._last, self._last_s = connection, now_s
        return self.is_alone

    def add_heartbeat(self, connection: MemberConnection) -> None:
        """Serves the connection's heartbeat, which has just been received, at the end of this turn
        or of a later one.
        """
        if not self._heartbeats:
            self._send()  # responses of work between this turn and the last, which clients wait for
        self._heartbeats.append((connection, self._last_s))
        self._schedule()

    def add_response(self, response: UnsentResponse) -> None:
        """Sends the response at the end of this turn, or as soon as there are MAX_UNSENT."""
        self._unsent.append(response)
        if len(self._unsent) >= MAX_UNSENT:
            self._send()
        else:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduled_s = self._clock()
            self._loop.call_soon(self._complete)  # after what lies ready in sockets, before the loop waits

    def _complete(self) -> None:
        self.is_alone = False
        self._serve_heartbeats()
        self._is_scheduled = False
        self._send()
        self._last_s = self._clock()
        if self._heartbeats:
            self._schedule()

    def _serve_heartbeats(self) -> None:
        """Serves MAX_UNSENT heartbeats, and more while they have taken less than their share of the
        time.
        """
        began_s = self._clock()
        end_s = began_s + HEARTBEATS_SHARE * (began_s - self._scheduled_s)
        while self._heartbeats:
            for _ in range(min(len(self._heartbeats), MAX_UNSENT)):
                connection, received_s = self._heartbeats.popleft()
                connection.serve_heartbeat(received_s)
            if self._clock() >= end_s:
                return

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for response in unsent:
            response.flush()
