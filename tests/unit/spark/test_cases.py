"""`ottla_spark test` without Spark: given lines as records, and the comparison of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_spark.dead_letter import judge
from ottla_spark.set_aside import nested
from ottla_spark.source import options
from ottla_spark.spec import DeadLetter, Format, Source
from ottla_spark.testing import compare, parsed, raw_rows
from ottla_spark.trouble import Trouble


def test_a_line_is_a_value_or_a_key_and_a_value() -> None:
    lines = [
        '{"a": 1}',
        '{"key": "k", "value": {"a": 2}}',
        '{"key": "gone", "value": null}',
        "no JSON",
        "",
        '{"value": "text"}',
    ]
    found = [(key, value, offset) for key, value, _, _, offset, _ in raw_rows(lines, "t")]
    assert found == [
        (None, b'{"a": 1}', 0),
        (b"k", b'{"a": 2}', 1),
        (b"gone", None, 2),
        (None, b"no JSON", 3),
        (None, b"text", 5),
    ]


def test_a_value_with_more_fields_is_no_envelope() -> None:
    ((key, value, *_),) = raw_rows(['{"key": 1, "value": 2, "more": 3}'], "t")
    assert (key, value) == (None, b'{"key": 1, "value": 2, "more": 3}')


def test_rows_are_compared_whatever_their_order_and_as_often_as_they_are() -> None:
    assert compare([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]) == []
    assert compare([{"a": 1}], [{"a": 1}, {"a": 1}]) == ['not expected: {"a": 1}']
    assert compare([{"a": 1}], []) == ['missing: {"a": 1}']


def test_only_named_columns_are_compared() -> None:
    assert compare([{"a": 1}], [{"a": 1, "b": 2}]) == []
    assert compare([{"a": 1, "b": None}], [{"a": 1}]) == []


def test_no_row_expected_means_none() -> None:
    assert compare([], [{"a": 1}]) == ['not expected: {"a": 1}']


def test_a_long_list_is_cut() -> None:
    lines = compare([{"a": number} for number in range(30)], [])
    assert len(lines) == 11
    assert lines[-1] == "and 20 more"


def test_an_expected_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(Trouble, match=r"x.jsonl, line 3: not JSON"):
        parsed(tmp_path / "x.jsonl")


def test_too_many_dead_letters_end_the_pipeline() -> None:
    judge(5, 100, DeadLetter(topic="dead", max_rate=0.05))
    judge(0, 0, DeadLetter(topic="dead", max_rate=0.05))
    judge(100, 100, DeadLetter(topic="dead"))
    with pytest.raises(Trouble, match=r"6 of 100 rows of a batch were set aside, more than maxRate 0.05 allows"):
        judge(6, 100, DeadLetter(topic="dead", max_rate=0.05))


def test_a_source_reads_committed_records_from_the_beginning_and_minds_losses() -> None:
    source = Source(topic="t", format=Format(type="raw"))
    found = options(source, {"bootstrap.servers": "b:1"})
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
    found = options(other, {})
    assert (found["failOnDataLoss"], found["kafka.isolation.level"]) == ("false", "read_uncommitted")
    assert (found["startingOffsets"], found["maxOffsetsPerTrigger"]) == ("latest", "9")


def test_offsets_as_the_connector_writes_them() -> None:
    assert nested({("b", 0): 1, ("a", 1): 2, ("a", 0): 3}) == {"a": {"0": 3, "1": 2}, "b": {"0": 1}}
