"""Test cases of pipelines, as far as they need no Spark: parsing lines of their given and expect
files, and comparing rows. Also the rate of dead letters, options of sources, and offsets.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla_operator.resources.formats import Format
from ottla_operator.resources.pipeline import DeadLetter
from ottla_operator.resources.sources import Source
from ottla_spark.errors import PipelineError
from ottla_spark.progress import format_offsets
from ottla_spark.streaming.cases import compare_rows, parse_expected, parse_given
from ottla_spark.streaming.dead_letters import check_rate
from ottla_spark.streaming.source import stream_options


def test_given_line_is_a_value_or_a_key_and_a_value() -> None:
    lines = [
        '{"a": 1}',
        '{"key": "k", "value": {"a": 2}}',
        '{"key": "gone", "value": null}',
        "no JSON",
        "",
        '{"value": "text"}',
    ]
    found = [(key, value, offset) for key, value, _, _, offset, _ in parse_given(lines, "t")]
    assert found == [
        (None, b'{"a": 1}', 0),
        (b"k", b'{"a": 2}', 1),
        (b"gone", None, 2),
        (None, b"no JSON", 3),
        (None, b"text", 5),
    ]


def test_object_with_other_fields_is_a_value() -> None:
    ((key, value, *_),) = parse_given(['{"key": 1, "value": 2, "more": 3}'], "t")
    assert (key, value) == (None, b'{"key": 1, "value": 2, "more": 3}')


def test_rows_are_compared_in_any_order_and_with_duplicates() -> None:
    assert compare_rows([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]) == []
    assert compare_rows([{"a": 1}], [{"a": 1}, {"a": 1}]) == ['unexpected: {"a": 1}']
    assert compare_rows([{"a": 1}], []) == ['missing: {"a": 1}']


def test_only_expected_columns_are_compared() -> None:
    assert compare_rows([{"a": 1}], [{"a": 1, "b": 2}]) == []
    assert compare_rows([{"a": 1, "b": None}], [{"a": 1}]) == []


def test_row_is_unexpected_if_none_is_expected() -> None:
    assert compare_rows([], [{"a": 1}]) == ['unexpected: {"a": 1}']


def test_long_list_of_differences_is_truncated() -> None:
    lines = compare_rows([{"a": number} for number in range(30)], [])
    assert len(lines) == 11
    assert lines[-1] == "and 20 more"


def test_error_names_an_expected_line_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(PipelineError, match=r"x.jsonl:3: not JSON"):
        parse_expected(tmp_path / "x.jsonl")


@pytest.mark.parametrize("line", ["5", '"a"', "[1]", "null"])
def test_error_names_an_expected_line_that_is_no_row(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"a": 1}}\n{line}\n')
    with pytest.raises(PipelineError, match=rf"x.jsonl:2: {re.escape(line)}: not a JSON object"):
        parse_expected(tmp_path / "x.jsonl")


def test_rate_of_dead_letters_above_the_maximum_is_an_error() -> None:
    check_rate(5, 100, DeadLetter(topic="dead", max_rate=0.05))
    check_rate(0, 0, DeadLetter(topic="dead", max_rate=0.05))
    check_rate(100, 100, DeadLetter(topic="dead"))
    with pytest.raises(PipelineError, match=r"6 of 100 rows of a batch are dead letters, above maxRate 0.05"):
        check_rate(6, 100, DeadLetter(topic="dead", max_rate=0.05))


def test_source_reads_committed_records_from_the_beginning_by_default() -> None:
    source = Source(topic="t", format=Format(type="raw"))
    found = stream_options(source, {"bootstrap.servers": "b:1"})
    assert found == {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "t",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
    }


def test_settings_of_a_source_become_options_of_the_stream() -> None:
    source = Source(
        topic="t",
        format=Format(type="raw"),
        on_data_loss="continue",
        isolation="read_uncommitted",
        starting_offsets="latest",
        max_offsets_per_trigger=9,
    )
    found = stream_options(source, {})
    assert (found["failOnDataLoss"], found["kafka.isolation.level"]) == ("false", "read_uncommitted")
    assert (found["startingOffsets"], found["maxOffsetsPerTrigger"]) == ("latest", "9")


def test_starting_time_of_a_source_becomes_a_timestamp_in_ms() -> None:
    source = Source(topic="t", format=Format(type="raw"), starting_offsets="2020-01-01T01:00:05.5+01:00")
    found = stream_options(source, {})
    assert (found["startingTimestamp"], found["startingOffsetsByTimestampStrategy"]) == ("1577836805500", "latest")
    assert "startingOffsets" not in found


def test_offsets_are_formatted_as_the_connector_reports_them() -> None:
    assert format_offsets({("b", 0): 1, ("a", 1): 2, ("a", 0): 3}) == {"a": {"0": 3, "1": 2}, "b": {"0": 1}}
