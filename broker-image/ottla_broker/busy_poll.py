"""Staying awake for a client that sends one small record after the other.

To wake a sleeping processor takes longer than to append a record, so for a client that waits for each acknowledgement most
of the latency is the broker's own waking. Where it pays, the loop polls for a short while after an answer instead of sleeping.

- It pays for a connection whose requests keep coming within that while after their answers: each such request earns
  a share of one vain wait, and a wait in vain costs all of it. So nobody keeps an idle broker awake, and a client with
  a rhythm of its own can waste no more than one wait in `SHARES` of its quick requests.
- Polling is a turn of the loop like any other: what else there is to do is done. Between two turns the processor is offered
  to whoever else can run on it, such as the client itself.
"""

import os
import time
from collections.abc import Callable
from typing import Final

LARGEST_REQUEST: Final = 8 << 10  # bytes; with a larger one, waking is the smaller part of what it costs
SHARES: Final = 16  # quick requests that pay for one vain wait
MOST_EARNED: Final = 10 * SHARES

Poll = Callable[[], None]


class PollCredit:
    """How quickly one connection's requests follow its answers. Times in nanoseconds."""

    __slots__ = ("_answered_at", "_earned")

    def __init__(self) -> None:
        self._answered_at: int | None = None
        self._earned = 0

    @property
    def pays(self) -> bool:
        return self._earned >= SHARES

    def answered(self, now: int) -> None:
        self._answered_at = now

    def asked(self, now: int, patience: int) -> None:
        if self._answered_at is None:
            return
        if now - self._answered_at <= patience:
            self._earned = min(self._earned + 1, MOST_EARNED)
        else:
            self._earned = max(self._earned - SHARES, 0)
        self._answered_at = None


class BusyPoll:
    """One per broker, on a loop of the real world: virtual time would not pass while it polls. `call_soon`: the loop's."""

    def __init__(
        self, call_soon: Callable[[Poll], object], patience_us: int, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._call_soon = call_soon
        self._patience = patience_us * 1000
        self._clock = clock
        self._until = 0
        self._awaited: PollCredit | None = None
        self._polling = False

    def on_request(self, rhythm: PollCredit) -> None:
        """Bytes have come on a connection."""
        rhythm.asked(self._clock(), self._patience)
        if rhythm is self._awaited:
            self._until = 0

    def on_response(self, rhythm: PollCredit) -> None:
        """A small request was answered at once, and nothing else of its connection is left to do."""
        now = self._clock()
        rhythm.answered(now)
        if rhythm.pays:
            self._until, self._awaited = now + self._patience, rhythm
            if not self._polling:
                self._polling = True
                self._call_soon(self._poll)

    def _poll(self) -> None:
        # The loop does not sleep while a call is due soon: it looks at its sockets and comes back here.
        if self._clock() < self._until:
            os.sched_yield()
            self._call_soon(self._poll)
        else:
            self._polling = False


def is_affordable() -> bool:
    """With a single processor, polling would only keep the client from it."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors > 1
