"""Progress of a pipeline until it has caught up: a bar with an estimate on a terminal, lines
elsewhere.

The estimate is the number of records that are left, divided by the rate at which that number has
fallen since the start. So records that are written in the meantime count. A pipeline has caught up
when no more records are left than its last batch had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

_BAR_WIDTH: Final = 24
_LINE_INTERVAL_S: Final = 5.0
_ENDS: Final = ("stopped", "finished", "failed")
_CLEAR_LINE: Final = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Progress of a catch-up. total: records that were left at the start, or more if more were left
    later. left: records that are left after the last batch. elapsed_s: time since the start.
    has_caught_up: the catch-up is complete, and needs no estimate.
    """

    total: int
    left: int
    elapsed_s: float
    has_caught_up: bool

    @property
    def share(self) -> float:
        return 1 - self.left / self.total if self.total else 1.0

    @property
    def rate(self) -> float:
        """Records per second by which `left` has fallen since the start, on average."""
        return (self.total - self.left) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the time until the pipeline has caught up. None if `left` has not fallen."""
        return self.left / self.rate if self.rate > 0 else None

    def after_batch(self, rows: int, left: int, elapsed_s: float) -> CatchUp:
        """The progress after one more batch. rows: records of that batch."""
        return CatchUp(max(self.total, left), left, elapsed_s, self.has_caught_up or left <= rows)


def start_catch_up(rows: int, left: int, elapsed_s: float) -> CatchUp:
    """The progress after the first batch. rows: records of that batch."""
    return CatchUp(rows + left, left, elapsed_s, left <= rows)


def format_catch_up(state: CatchUp) -> str:
    if state.has_caught_up:
        return f"caught up with {_format_records(state.total)} after {format_seconds(state.elapsed_s)}; live"
    filled = int(state.share * _BAR_WIDTH)
    bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
    estimate = "falling behind" if state.seconds_left is None else f"{format_seconds(state.seconds_left)} left"
    done = f"{state.total - state.left:,} of {_format_records(state.total)}"
    return f"{bar} {state.share:4.0%}  {done}  {state.rate:,.0f}/s  {estimate}"


def _format_records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


class CatchUpTracker:
    """Computes the progress of a catch-up from the lines of the progress log. `state`: None before
    the first batch with records.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.state: CatchUp | None = None

    def update(self, line: Mapping[str, Any]) -> bool:
        """True if the state has changed. It stays the same once the pipeline has caught up."""
        if self.state is not None and self.state.has_caught_up:
            return False
        if line["state"] == "running" and "batch" not in line:
            self._started = self._clock()
        if "batch" not in line or not line["rows"]:
            return False
        batch = (line["rows"], line["lag"]["records"], self._clock() - self._started)
        self.state = start_catch_up(*batch) if self.state is None else self.state.after_batch(*batch)
        return True


class CatchUpDisplay:
    """Writes the progress of a pipeline until it has caught up. Takes lines of the progress log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._tracker = CatchUpTracker(clock)
        self._printed_s = -_LINE_INTERVAL_S

    def update(self, line: Mapping[str, Any]) -> None:
        state = self._tracker.state
        is_shown = state is not None and not state.has_caught_up
        if line["state"] in _ENDS and is_shown and self._stream.isatty():
            self._stream.write("\n")  # what is written next begins below the bar
        if self._tracker.update(line) and self._tracker.state is not None:
            self._print(self._tracker.state)

    def _print(self, state: CatchUp) -> None:
        if self._stream.isatty():
            end = "\n" if state.has_caught_up else ""
            self._stream.write(f"{_CLEAR_LINE}{format_catch_up(state)}{end}")
        elif state.has_caught_up or state.elapsed_s - self._printed_s >= _LINE_INTERVAL_S:
            self._printed_s = state.elapsed_s
            self._stream.write(f"{format_catch_up(state)}\n")
        self._stream.flush()
