"""The reasons for which a connection serves no further request, like Kafka's `ChannelMuteState`.

Requests in progress get their responses. Some reasons also stop reading from the socket; the others
leave that to the bounds on queued requests.
"""

import asyncio
from collections.abc import Callable
from typing import Final

UNREAD_RESPONSES: Final = 1  # the client does not read its responses (rule 18)
NO_RESPONSE_MEMORY: Final = 2  # a fetch waits until slow clients have read some of their responses
BROKER_STARTING: Final = 4  # a client's request waits until the broker is ready
THROTTLED: Final = 8  # the client exceeds a quota, or its connection was refused or is above a rate
FINISHING: Final = 16  # the connection closes as soon as the requests in progress are answered

STOPS_READING: Final = UNREAD_RESPONSES | THROTTLED | FINISHING


class MuteState:
    """`reasons`: the sum of those that hold; 0 while requests are served."""

    __slots__ = ("_start_timer", "_throttle_timer", "reasons")

    def __init__(self) -> None:
        self.reasons = 0
        self._start_timer: asyncio.TimerHandle | None = None
        self._throttle_timer: asyncio.TimerHandle | None = None

    def mute(self, reason: int) -> None:
        self.reasons |= reason

    def unmute(self, reason: int) -> None:
        self.reasons &= ~reason

    def wait_for_start(self, timeout_s: float, on_timeout: Callable[[], None]) -> None:
        """Mutes until `end_wait_for_start`."""
        self.reasons |= BROKER_STARTING
        self._start_timer = asyncio.get_running_loop().call_later(timeout_s, on_timeout)

    def end_wait_for_start(self) -> None:
        self.reasons &= ~BROKER_STARTING
        if self._start_timer is not None:
            self._start_timer.cancel()

    def throttle(self, duration_s: float, on_end: Callable[[], None]) -> None:
        """Mutes until `end_throttle`, which `on_end` has to call. A throttling that ends later
        continues instead.
        """
        loop = asyncio.get_running_loop()
        if self._throttle_timer is not None:
            if self._throttle_timer.when() >= loop.time() + duration_s:
                return
            self._throttle_timer.cancel()
        self.reasons |= THROTTLED
        self._throttle_timer = loop.call_later(duration_s, on_end)

    def end_throttle(self) -> None:
        self.reasons &= ~THROTTLED
        self._throttle_timer = None

    def cancel_timers(self) -> None:
        for timer in (self._start_timer, self._throttle_timer):
            if timer is not None:
                timer.cancel()
