"""The progress of a pipeline until it has caught up."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_spark.catch_up import CatchUp, CatchUpDisplay, format_catch_up, format_seconds, start_catch_up
from ottla_spark.progress import BatchProgress, ProgressLog

RUNNING = {"state": "running", "group": "g"}


BATCH = BatchProgress("q", 0, 10, 10, 0, 1.0, 1.0, 5, None, {}, {})


def batch(rows: int, left: int) -> dict[str, Any]:
    return {"state": "running", "batch": 1, "rows": rows, "lag": {"records": left}}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def display_lines(stream: io.StringIO, lines: list[dict[str, Any]], step_s: float) -> list[str]:
    """The lines that are written if lines of the progress log come every `step_s` seconds."""
    clock: Iterator[float] = (number * step_s for number in range(100))
    display = CatchUpDisplay(stream, clock=lambda: next(clock))
    for line in lines:
        display.update(line)
    return stream.getvalue().splitlines()


def test_estimate_is_the_lag_divided_by_the_rate_at_which_it_decreases() -> None:
    state = start_catch_up(rows=1_000, left=9_000, elapsed_s=2)
    assert (round(state.share, 3), state.rate, state.seconds_left) == (0.1, 500, 18)
    state = state.after_batch(rows=1_000, left=8_000, elapsed_s=4)
    assert (state.total, round(state.share, 3), state.seconds_left) == (10_000, 0.2, 16)
    assert not state.has_caught_up
    assert state.after_batch(rows=1_000, left=1_000, elapsed_s=20).has_caught_up


def test_pipeline_that_falls_behind_has_no_estimate() -> None:
    state = start_catch_up(1_000, 9_000, 2).after_batch(1_000, 12_000, 4)
    assert (state.total, state.share, state.seconds_left) == (12_000, 0, None)
    assert format_catch_up(state).endswith("falling behind")


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 1_000)), min_size=1, max_size=20))
def test_share_is_never_outside_of_its_range(batches: list[tuple[int, int]]) -> None:
    state: CatchUp | None = None
    for number, (rows, left) in enumerate(batches):
        state = start_catch_up(rows, left, number) if state is None else state.after_batch(rows, left, number)
        assert 0 <= state.share <= 1
        assert state.seconds_left is None or state.seconds_left >= 0
        assert len(format_catch_up(state).splitlines()) == 1


def test_lines_are_written_at_intervals_and_end_when_the_pipeline_is_live() -> None:
    lines = [RUNNING, batch(1_000, 4_000), {**batch(0, 4_000)}, batch(1_000, 3_000), batch(3_000, 0), batch(5, 0)]
    assert display_lines(io.StringIO(), lines, step_s=4) == [
        "████░░░░░░░░░░░░░░░░░░░░  20%  1,000 of 5,000 records  250/s  16 s left",
        "caught up with 5,000 records after 12 s; live",
    ]
    assert format_catch_up(start_catch_up(1, 0, 2)) == "caught up with 1 record after 2 s; live"


def test_terminal_shows_a_bar_that_is_replaced() -> None:
    text = "".join(
        display_lines(Terminal(), [RUNNING, batch(1_000, 4_000), batch(1_000, 3_000), batch(3_000, 0)], step_s=1)
    )
    assert text.count("\x1b[K") == 3
    assert "40%  2,000 of 5,000 records  1,000/s  3 s left" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (7_320, "2 h 2 min")]
)
def test_seconds_are_formatted_with_their_two_largest_units(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_pipeline_that_ends_leaves_the_bar_in_a_line_of_its_own() -> None:
    stream = Terminal()
    display_lines(stream, [RUNNING, batch(1_000, 4_000), {"state": "failed", "error": "e"}], step_s=1)
    assert stream.getvalue().endswith("4 s left\n")


def test_progress_log_passes_its_lines_on_to_the_display() -> None:
    stream = io.StringIO()
    ProgressLog(None, "p", display=CatchUpDisplay(stream)).write_batch(BATCH, {"records": 0})
    assert stream.getvalue().startswith("caught up with 10 records")
