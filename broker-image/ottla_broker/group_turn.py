"""Requests of groups that arrive in one turn of the event loop. When a group rebalances, those of
its members arrive many at a time.

- Heartbeats that repeat the last one of their connection are served after everything else that the
  turn has received. One that lay in its socket before a JoinGroup of the same turn tells its member
  of the rebalance, which would otherwise need another heartbeat.
- A request that comes alone is served at once, and its response sent at once: a heartbeat takes 13
  µs of processor time then, and would take 15 at the end of the turn.
- Responses are sent together. One that is sent alone wakes its client, which has read it before the
  next one is sent. Then each response costs both sides a wake-up.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

MAX_UNSENT: Final = 32
"""With more unsent responses, clients would wait while the broker serves the rest."""
ALONE_S: Final = 0.001
"""A request comes alone if no other connection of a member has sent one for so long."""


class MemberConnection(Protocol):
    def serve_heartbeat(self, received_s: float) -> None:
        """Called at the end of the turn. `received_s`: when it began. Raises nothing."""
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
        self._began_s = 0.0
        self._is_scheduled = False
        self.is_alone = False
        self._last: MemberConnection | None = None  # that has sent a request, at `_last_s`
        self._last_s = 0.0
        self._heartbeats: list[MemberConnection] = []
        self._unsent: list[UnsentResponse] = []

    def receive(self, connection: MemberConnection) -> bool:
        """Called with each request of a member's connection. True if it comes alone: it is of the
        same connection as the last one, or none has come for ALONE_S.
        """
        now_s = self._clock()
        self.is_alone = not self._is_scheduled and (connection is self._last or now_s - self._last_s > ALONE_S)
        self._last, self._last_s = connection, now_s
        return self.is_alone

    def add_heartbeat(self, connection: MemberConnection) -> None:
        """Serves the connection's heartbeat at the end of this turn."""
        if not self._heartbeats:
            self._began_s = self._clock()
            self._send()  # responses of work between this turn and the last, which clients wait for
        self._heartbeats.append(connection)
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
            self._loop.call_soon(self._complete)  # after what lies ready in sockets, before the loop waits

    def _complete(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, []
        self.is_alone = False
        for connection in heartbeats:
            connection.serve_heartbeat(self._began_s)
        self._is_scheduled = False
        self._send()
        self._last_s = self._clock()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for response in unsent:
            response.flush()
