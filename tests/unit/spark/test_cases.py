"""`ottla_spark test` without Spark: given lines as records, and the comparison of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_operator.resources.pipeline import DeadLetter, Format, Source
from ottla_spark.errors import PipelineError
from ottla_spark.progress import format_offsets
from ottla_spark.streaming.cases import compare_rows, parse_expected, parse_given
from ottla_spark.streaming.dead_letters import check_rate
from ottla_spark.streaming.source import stream_options


def test_a_line_is_a_value_or_a_key_and_a_value() -> None:
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


def test_a_value_with_more_fields_is_no_envelope() -> None:
    ((key, value, *_),) = parse_given(['{"key": 1, "value": 2, "more": 3}'], "t")
    assert (key, value) == (None, b'{"key": 1, "value": 2, "more": 3}')


def test_rows_are_compared_whatever_their_order_and_as_often_as_they_are() -> None:
    assert compare_rows([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]) == []
    assert compare_rows([{"a": 1}], [{"a": 1}, {"a": 1}]) == ['unexpected: {"a": 1}']
    assert compare_rows([{"a": 1}], []) == ['missing: {"a": 1}']


def test_only_named_columns_are_compared() -> None:
    assert compare_rows([{"a": 1}], [{"a": 1, "b": 2}]) == []
    assert compare_rows([{"a": 1, "b": None}], [{"a": 1}]) == []


def test_no_row_expected_means_none() -> None:
    assert compare_rows([], [{"a": 1}]) == ['unexpected: {"a": 1}']


def test_a_long_list_is_cut() -> None:
    lines = compare_rows([{"a": number} for number in range(30)], [])
    assert len(lines) == 11
    assert lines[-1] == "and 20 more"


def test_an_expected_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(PipelineError, match=r"x.jsonl:3: not JSON"):
        parse_expected(tmp_path / "x.jsonl")


def test_too_many_dead_letters_end_the_pipeline() -> None:
    check_rate(5, 100, DeadLetter(topic="dead", max_rate=0.05))
    check_rate(0, 0, DeadLetter(topic="dead", max_rate=0.05))
    check_rate(100, 100, DeadLetter(topic="dead"))
    with pytest.raises(PipelineError, match=r"6 of 100 rows of a batch are dead letters, above maxRate 0.05"):
        check_rate(6, 100, DeadLetter(topic="dead", max_rate=0.05))


def test_a_source_reads_committed_records_from_the_beginning_and_minds_losses() -> None:
    source = Source(topic="t", format=Format(type="raw"))
    found = stream_options(source, {"bootstrap.servers": "b:1"})
    assert found == {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "t",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
    }
    other = Source(
        topic="t", format=Format(type="raw"), on_data_loss="continue", isolation="read_uncommitted", starting_offsets="latest",
        max_offsets_per_trigger=9,
    )  # fmt: skip
    found = stream_options(other, {})
    assert (found["failOnDataLoss"], found["kafka.isolation.level"]) == ("false", "read_uncommitted")
    assert (found["startingOffsets"], found["maxOffsetsPerTrigger"]) == ("latest", "9")


def test_offsets_as_the_connector_writes_them() -> None:
    assert format_offsets({("b", 0): 1, ("a", 1): 2, ("a", 0): 3}) == {"a": {"0": 3, "1": 2}, "b": {"0": 1}}
