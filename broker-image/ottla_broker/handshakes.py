"""TLS handshakes in progress: bounded in number and time, and logged when they fail (rule 18).

A connection is counted until its handshake is complete, so that clients that never complete a
handshake cannot open more connections than the limit.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla_broker.wire.tls_transport import TlsTransport

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
MAX_IN_PROGRESS: Final = 1024
"""Each takes some tens of kilobytes."""
MIN_AGE_S: Final = 1.0
"""At MAX_IN_PROGRESS the oldest handshake is aborted for a new one, unless it is younger than
this.
"""
LOG_INTERVAL_S: Final = 10.0
"""Interval between two log lines with the same reason."""


class Handshakes:
    """The TLS handshakes in progress on one listener. `admit(host)` returns how many seconds one
    more connection from that address has to wait, or None to refuse it. `release(host)` is called
    at the end of each admitted handshake.
    """

    def __init__(self, admit: Callable[[str], float | None], release: Callable[[str], None]) -> None:
        self._admit = admit
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._in_progress: dict[TlsTransport, tuple[str, float, asyncio.TimerHandle]] = {}  # host, start, timeout
        self._logged: dict[str, tuple[float, int]] = {}  # reason → when it was last logged, how often it occurred since

    def __len__(self) -> int:
        return len(self._in_progress)

    def begin(self, connection: TlsTransport) -> bool:
        """Counts the handshake of a new connection. Returns False if the connection must be
        refused.
        """
        host, now = _peer_host(connection), self._loop.time()
        if (wait_s := self._admit(host)) is None:
            return False
        if len(self._in_progress) >= MAX_IN_PROGRESS:
            oldest, (_, begun, _) = next(iter(self._in_progress.items()))
            if now - begun < MIN_AGE_S:
                self.log_failure(connection, f"{MAX_IN_PROGRESS} other handshakes are in progress")
                self._release(host)
                return False
            self._abort(oldest, f"the handshake took longer than {MAX_IN_PROGRESS} others that began after it")
        if wait_s:
            connection.delay_handshake(wait_s)
        why = f"the handshake was not done within {TIMEOUT_S:.0f} s"
        timeout = self._loop.call_later(wait_s + TIMEOUT_S, self._abort, connection, why)
        self._in_progress[connection] = host, now, timeout
        return True

    def complete(self, connection: TlsTransport) -> None:
        self._remove(connection)

    def fail(self, connection: TlsTransport, why: str) -> None:
        """`why`: logged unless it is empty."""
        if self._remove(connection) and why:
            self.log_failure(connection, why)

    def log_failure(self, connection: TlsTransport, why: str) -> None:
        """Logs a failure of TLS, in the handshake or after it. Logs each reason at most once in
        LOG_INTERVAL_S, so that a client that retries forever does not fill the log.
        """
        now = self._loop.time()
        at, suppressed = self._logged.get(why, (-LOG_INTERVAL_S, 0))
        if now - at < LOG_INTERVAL_S:
            self._logged[why] = at, suppressed + 1
            return
        self._logged[why] = now, 0
        more = f" ({suppressed} more since this was last logged)" if suppressed else ""
        host, port = (connection.get_extra_info("peername") or ("", 0))[:2]
        logger.warning("TLS with %s:%d failed: %s%s", host, port, why, more)

    def close(self) -> None:
        for connection in tuple(self._in_progress):
            self._remove(connection)
            connection.abort()

    def _abort(self, connection: TlsTransport, why: str) -> None:
        self.fail(connection, why)
        connection.abort()

    def _remove(self, connection: TlsTransport) -> bool:
        """Returns whether the handshake was in progress."""
        if (found := self._in_progress.pop(connection, None)) is None:
            return False
        host, _, timeout = found
        timeout.cancel()
        self._release(host)
        return True


def _peer_host(connection: TlsTransport) -> str:
    host: str = (connection.get_extra_info("peername") or ("",))[0]
    return host
