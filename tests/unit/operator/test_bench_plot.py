"""The plot and the summary of `ottla bench`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.bench.measurements import INTERVAL_S, Throughput, describe_quantiles
from ottla_operator.bench.plot import plot, shrink


def test_bars_are_as_high_as_their_values() -> None:
    assert plot([0, 4, 8, 2], "{:.0f}".format, height=2, seconds=4) == [
        "8 ┤  █",
        "0 ┤ ██▄",
        "   0 4 s",
    ]


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    assert plot([], str, height=2) == ["    ┤", "0.0 ┤"]
    assert plot([0.0, 0.0], "{:.0f}".format, height=1) == ["0 ┤"]


@given(st.lists(st.floats(0, 1e12), max_size=300), st.integers(1, 80), st.integers(1, 8))
def test_plot_stays_in_its_frame(values: list[float], width: int, height: int) -> None:
    lines = plot(values, "{:.0f}".format, width=width, height=height)
    assert len(lines) == height
    margin = lines[0].index("┤") + 1
    assert all(line.index("┤") + 1 == margin and len(line) <= margin + width for line in lines)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.integers(1, 80))
def test_averages_lie_between_the_values(values: list[float], width: int) -> None:
    bars = shrink(values, width)
    assert len(bars) == min(len(values), width)
    assert all(min(values) - 1e-6 <= bar <= max(values) + 1e-6 for bar in bars)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], (None, None, None, None)), ([7.0], (7, 7, 7, 7)), (list(range(1, 101)), (50, 95, 99, 100))],
)
def test_quantiles_are_values_that_were_measured(values: list[float], expected: tuple[float | None, ...]) -> None:
    assert tuple(describe_quantiles(values).values()) == expected


def test_rates_are_those_of_the_phase() -> None:
    found = Throughput()
    found.add(0.1, 10, 1000)
    found.add(INTERVAL_S * 2.5, 30, 3000)
    found.seconds, found.cpu_s = 1.0, 0.95
    assert found.by_interval == [1000, 0, 3000]
    assert found.bytes_per_second == [1000 / INTERVAL_S, 0]
    assert (found.summary()["recordsPerSecond"], found.summary()["bytesPerSecond"]) == (40, 4000)
    assert found.is_limited_by_client
