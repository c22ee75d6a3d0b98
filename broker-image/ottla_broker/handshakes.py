"""TLS handshakes that are under way: bounded in number and time, and told of when they fail (rule 18).

A connection counts from here until its handshake is done, so that nobody holds more by never finishing one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from ottla_broker.wire.tls_transport import TlsTransport

logger = logging.getLogger(__name__)

WITHIN_S: Final = 10.0
MOST: Final = 1024  # under way at a time; each takes some tens of kilobytes
SPARED_S: Final = 1.0  # where there are so many, the oldest gives way, unless it is younger
QUIET_S: Final = 10.0  # between two lines that say the same


class Handshakes:
    """Of all listeners. `has_room(host)`: whether one more connection of that address is allowed."""

    def __init__(self, has_room: Callable[[str], bool]) -> None:
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[TlsTransport, tuple[str, float, asyncio.TimerHandle]] = {}  # host, begun, limit
        self._of_host: Counter[str] = Counter()
        self._said: dict[str, tuple[float, int]] = {}  # why → when it was said last, how often it was true since

    def __len__(self) -> int:
        return len(self._under_way)

    def of_host(self, host: str) -> int:
        return self._of_host[host]

    def begin(self, one: TlsTransport) -> bool:
        host, now = _host_of(one), self._loop.time()
        if not self._has_room(host):
            return False
        if len(self._under_way) >= MOST:
            oldest, (_, begun, _) = next(iter(self._under_way.items()))
            if now - begun < SPARED_S:
                self._say(one, f"{MOST} others are under way")
                return False
            self._give_up(oldest, f"it took longer than {MOST} others that came after it")
        timer = self._loop.call_later(WITHIN_S, self._give_up, one, f"it was not done within {WITHIN_S:.0f} s")
        self._under_way[one] = host, now, timer
        self._of_host[host] += 1
        return True

    def succeeded(self, one: TlsTransport) -> None:
        self._forget(one)

    def failed(self, one: TlsTransport, why: str) -> None:
        if self._forget(one) and why:
            self._say(one, why)

    def broke(self, one: TlsTransport, why: str) -> None:
        self._say(one, why)

    def close(self) -> None:
        for one in tuple(self._under_way):
            self._forget(one)
            one.abort()

    def _give_up(self, one: TlsTransport, why: str) -> None:
        self.failed(one, why)
        one.abort()

    def _forget(self, one: TlsTransport) -> bool:
        """Whether it was under way."""
        if (found := self._under_way.pop(one, None)) is None:
            return False
        host, _, timer = found
        timer.cancel()
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        return True

    def _say(self, one: TlsTransport, why: str) -> None:
        """Once in a while for each reason: whoever tries again and again does not fill the log."""
        now = self._loop.time()
        at, kept = self._said.get(why, (-QUIET_S, 0))
        if now - at < QUIET_S:
            self._said[why] = at, kept + 1
            return
        self._said[why] = now, 0
        more = f" ({kept} more since it was last said)" if kept else ""
        host, port = (one.get_extra_info("peername") or ("", 0))[:2]
        logger.warning("no TLS with %s:%d: %s%s", host, port, why, more)


def _host_of(one: TlsTransport) -> str:
    host: str = (one.get_extra_info("peername") or ("",))[0]
    return host
