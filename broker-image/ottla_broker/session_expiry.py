"""When a connection with SASL closes: if its client has not logged in in time, and when its session
expires (KIP-368).
"""

import asyncio
from collections.abc import Callable

from ottla_broker.security.sasl_session import SaslSession


class SessionExpiry:
    """Of one connection. `close` closes it, with the reason."""

    __slots__ = ("_close", "_timer")

    def __init__(self, close: Callable[[str], None]) -> None:
        self._close = close
        self._timer: asyncio.TimerHandle | None = None

    def limit_login(self, timeout_s: float) -> None:
        """Closes the connection if `follow_session` is not called with a login within `timeout_s`;
        0: no limit.
        """
        if timeout_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout_s, self._close, f"it has not logged in within {timeout_s:.0f} s")

    def follow_session(self, session: SaslSession) -> None:
        """Closes the connection when the session of a client that is logged in expires."""
        if self._timer is not None and self._timer.when() != session.expires_s:
            self.cancel()
        if session.expires_s is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(session.expires_s, self._close, "its session has expired")

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
