"""Busy polling for a client that sends one small record after the other.

To wake a sleeping processor takes longer than to append a record, so a client that waits for each
acknowledgement mostly waits for the broker's processor. For a short while after such a response the
loop polls instead of sleeping: on two otherwise idle processors the median acknowledgement takes
0.072 ms instead of 0.158 (bench line `latency-p50`, 16 and 8 runs). Nothing is gained when other
programs keep the processors busy: 0.056 ms instead of 0.050.

- A connection earns credit with requests that quickly follow their responses: each is worth a share
  of one poll, and a poll without a request costs a whole one. So an idle broker sleeps, and a
  slower client wastes at most one poll in `SHARES_PER_POLL` quick requests.
- Each poll is an iteration of the event loop. Between two of them other programs, such as the
  client, may use the processor."""

import os
import time
from collections.abc import Callable
from typing import Final

MAX_REQUEST_BYTES: Final = 8 << 10  # with a larger request, waking is the smaller part of the cost
SHARES_PER_POLL: Final = 16  # quick requests that pay for one poll without a request
MAX_SHARES: Final = 10 * SHARES_PER_POLL

Poll = Callable[[], None]


class PollCredit:
    """Measures how quickly the requests of one connection follow its responses."""

    __slots__ = ("_responded_ns", "_shares")

    def __init__(self) -> None:
        self._responded_ns: int | None = None
        self._shares = 0

    @property
    def is_counting(self) -> bool:
        """True between a response and the next request."""
        return self._responded_ns is not None

    @property
    def is_sufficient(self) -> bool:
        return self._shares >= SHARES_PER_POLL

    def on_response(self, now_ns: int) -> None:
        self._responded_ns = now_ns

    def on_request(self, now_ns: int, max_ns: int) -> None:
        """`max_ns`: the longest time after a response in which a request counts as quick."""
        if self._responded_ns is None:
            return
        if now_ns - self._responded_ns <= max_ns:
            self._shares = min(self._shares + 1, MAX_SHARES)
        else:
            self._shares = max(self._shares - SHARES_PER_POLL, 0)
        self._responded_ns = None


class BusyPoll:
    """One per broker, on a loop with real time, because virtual time would not pass while it polls.
    `max_us`: duration of one poll.
    """

    def __init__(
        self, call_soon: Callable[[Poll], object], max_us: int, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._call_soon = call_soon
        self._max_ns = max_us * 1000
        self._clock = clock
        self._until_ns = 0
        self._awaited: PollCredit | None = None
        self._polling = False

    def on_request(self, credit: PollCredit) -> None:
        """Called when bytes have arrived on the connection of `credit`."""
        credit.on_request(self._clock(), self._max_ns)
        if credit is self._awaited:
            self._until_ns = 0

    def on_response(self, credit: PollCredit) -> None:
        """Called when a small request was answered at once and no other request of its connection
        is open.
        """
        now_ns = self._clock()
        credit.on_response(now_ns)
        if credit.is_sufficient:
            self._until_ns, self._awaited = now_ns + self._max_ns, credit
            if not self._polling:
                self._polling = True
                self._call_soon(self._poll)

    def _poll(self) -> None:
        # The loop does not sleep while a call is due: it polls its sockets and calls this again.
        if self._clock() < self._until_ns:
            os.sched_yield()
            self._call_soon(self._poll)
        else:
            self._polling = False


def is_affordable() -> bool:
    """False with a single processor, which the client needs."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors > 1
