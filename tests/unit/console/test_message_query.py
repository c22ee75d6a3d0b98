"""The query parameters of the console's pages of messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.message_query import parse_positions, parse_start, parse_time_ms
from ottla_broker.console.partition_reader import Start, format_positions
from ottla_broker.console.requests import PageError


@given(st.dictionaries(st.integers(0, 10_000), st.integers(0, 2**63 - 1), max_size=5))
def test_positions_are_read_as_they_are_written(positions: dict[int, int]) -> None:
    assert parse_positions(format_positions(positions)) == positions


@pytest.mark.parametrize("text", ["0", "0:", ":1", "a:1", "0:-1", "0:1;1:2", "0:" + "9" * 20])
def test_invalid_positions_are_named(text: str) -> None:
    with pytest.raises(PageError, match="positions="):
        parse_positions(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00", 1_767_225_600_000),
        ("2026-01-01 00:00:00.25", 1_767_225_600_250),
        ("2026-01-01T01:00+01:00", 1_767_225_600_000),
        ("2026-01-01", 1_767_225_600_000),
        ("1767225600000", 1_767_225_600_000),
    ],
)
def test_times_are_utc_unless_they_name_a_zone(text: str, expected: int) -> None:
    assert parse_time_ms(text) == expected


def test_start_kinds_require_their_offset_or_time() -> None:
    assert parse_start("newest", "ignored") == Start("newest")
    assert parse_start("offset", "12") == Start("offset", 12)
    for kind, text in (("offset", "-1"), ("offset", ""), ("offset", "9" * 20), ("time", "noon"), ("time", "")):
        with pytest.raises(PageError, match="at="):
            parse_start(kind, text)  # type: ignore[arg-type]
