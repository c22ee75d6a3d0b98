"""Requests of groups that arrive in one turn of the event loop. When a group rebalances, those of
its members arrive many at a time.

- Heartbeats that repeat the last one of their connection are served after everything else that the
  turn has received. One that lay in its socket before a JoinGroup of the same turn tells its member
  of the rebalance, which would otherwise need another heartbeat.
- Responses are sent together. One that is sent alone wakes its client, which has read it before the
  next one is sent. Then each response costs both sides a wake-up.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

MAX_UNSENT: Final = 32
"""With more unsent responses, clients would wait while the broker serves the rest."""


class MemberConnection(Protocol):
    def serve_heartbeat(self, received_s: float) -> None:
        """Called at the end of the turn. `received_s`: when it began. Raises nothing."""
        ...


class UnsentResponse(Protocol):
    def flush(self) -> None:
        """Sends the response unless it has been sent since it was added."""
        ...


class GroupTurn:
    """One per broker. `clock`: that of `RequestTimes`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self._loop = loop
        self._clock = clock
        self._began_s = 0.0
        self._is_scheduled = False
        self._heartbeats: list[MemberConnection] = []
        self._unsent: list[UnsentResponse] = []

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
        for connection in heartbeats:
            connection.serve_heartbeat(self._began_s)
        self._is_scheduled = False
        self._send()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        for response in unsent:
            response.flush()
