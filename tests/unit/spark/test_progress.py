"""Progress events of Spark, offsets of queries, and the progress log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_spark.progress import (
    BatchProgress,
    ProgressLog,
    QueryOffsets,
    format_lag,
    parse_offsets,
    parse_progress_event,
)
from tests.progress_log import read_progress_log
from tests.unit.spark.progress_events import EVENT


def completed_batch(query: str, ends: dict[int, int]) -> BatchProgress:
    source = {"endOffset": {"t": {str(p): o for p, o in ends.items()}}}
    return parse_progress_event({"name": query, "batchId": 0, "numInputRows": 1, "sources": [source]})


def test_progress_event_is_parsed() -> None:
    found = parse_progress_event(json.dumps(EVENT))
    assert (found.query, found.number, found.rows, found.written, found.dead_letters) == ("delays", 7, 60000, 12, 3)
    assert (found.duration_ms, found.watermark) == (3012, "2013-10-27T22:05:00.000Z")
    assert found.rejected == {"flights": {"undecoded": 2}, "departures": {"sane": 1, "known": 0}}
    assert found.start_offsets == {("flights", 0): 100, ("flights", 1): 90}
    assert found.end_offsets == {("flights", 0): 200, ("flights", 1): 190}


def test_first_event_has_no_start_offsets_and_may_lack_metrics() -> None:
    event = {**EVENT, "sources": [{"startOffset": None, "endOffset": '{"flights":{"0":3}}', "latestOffset": None}]}
    event |= {"inputRowsPerSecond": None, "observedMetrics": {"counts": {"rows": None}}}
    found = parse_progress_event(event)
    assert (found.start_offsets, found.end_offsets) == ({}, {("flights", 0): 3})
    assert (found.input_rows_per_second, found.written) == (0.0, 0)


def test_offsets_are_parsed_from_objects_and_from_text() -> None:
    assert parse_offsets('{"t": {"0": 5}}') == parse_offsets({"t": {"0": 5}}) == {("t", 0): 5}
    assert parse_offsets(None) == {}


def test_committable_offset_is_the_smallest_of_all_queries() -> None:
    positions = QueryOffsets()
    positions.add_batch(completed_batch("a", {0: 10, 1: 5}))
    positions.add_batch(completed_batch("b", {0: 4, 1: 5}))
    assert positions.committable == {("t", 0): 4, ("t", 1): 5}
    assert positions.lag_records({("t", 0): 20, ("t", 1): 5}) == {("t", 0): 16, ("t", 1): 0}
    positions.add_batch(completed_batch("b", {0: 20, 1: 5}))
    assert positions.committable[("t", 0)] == 10


def test_query_without_a_batch_in_this_run_is_at_its_checkpoint() -> None:
    positions = QueryOffsets()
    positions.add_query("a", frozenset("t"), {("t", 0): 10})
    positions.add_query("b", frozenset("t"), {("t", 0): 4})
    positions.add_batch(completed_batch("a", {0: 20}))
    assert positions.committable == {("t", 0): 4} and not positions.all_queries_reported
    positions.add_batch(completed_batch("b", {0: 30}))
    assert positions.committable == {("t", 0): 20} and positions.all_queries_reported


def test_partition_that_a_query_has_not_processed_is_not_committable() -> None:
    positions = QueryOffsets()
    positions.add_query("a", frozenset("tu"), {})
    positions.add_query("new", frozenset("t"), {})
    positions.add_query("other", frozenset("v"), {})
    positions.add_batch(
        parse_progress_event(
            {"name": "a", "batchId": 0, "numInputRows": 1, "sources": [ends(t={0: 5}), ends(u={0: 7})]}
        )
    )
    assert positions.committable == {("u", 0): 7}, "a partition does not wait for queries that do not read it"
    assert positions.lag_records({("t", 0): 6, ("u", 0): 7})[("t", 0)] == 1, (
        "a partition's lag may be known before its offset is committable"
    )
    positions.add_batch(completed_batch("new", {0: 3, 1: 1}))
    assert positions.committable == {("t", 0): 3, ("u", 0): 7}, (
        "a partition that only one query has processed is not committable"
    )


def test_end_offset_is_the_smallest_of_two_streams_of_one_topic() -> None:
    found = parse_progress_event(
        {"name": "a", "batchId": 0, "numInputRows": 1, "sources": [ends(t={0: 5}), ends(t={0: 3, 1: 9})]}
    )
    assert found.end_offsets == {("t", 0): 3, ("t", 1): 9}


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9)), max_size=8))
def test_lag_is_never_negative(steps: list[tuple[str, int, int]]) -> None:
    positions = QueryOffsets()
    for query, end, log_end in steps:
        positions.add_batch(completed_batch(query, {0: end}))
        assert all(records >= 0 for records in positions.lag_records({("t", 0): log_end}).values())
        assert positions.committable[("t", 0)] == min(at[("t", 0)] for at in positions.ends.values())


def ends(**topics: dict[int, int]) -> dict[str, Any]:
    return {"endOffset": {topic: {str(at): end for at, end in of.items()} for topic, of in topics.items()}}


def test_lag_is_in_records_and_seconds() -> None:
    found = format_lag({("t", 0): 3, ("t", 1): 0}, {("t", 0): 1_000}, now_ms=3_500)
    assert found["records"] == 3
    assert found["seconds"] == 2.5
    assert found["partitions"] == {"t": {"0": {"records": 3, "seconds": 2.5}, "1": {"records": 0, "seconds": 0.0}}}


def test_lag_in_seconds_is_null_if_the_record_could_not_be_read() -> None:
    found = format_lag({("t", 0): 3, ("t", 1): 0}, {}, now_ms=3_500)
    assert found["seconds"] is None
    assert format_lag({}, {}, now_ms=0) == {"records": 0, "seconds": 0.0, "partitions": {}}


def test_progress_log_has_complete_lines_and_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "new" / "progress.jsonl"
    log = ProgressLog(path, "delays")
    log.write_state("starting")
    log.write_batch(parse_progress_event(EVENT), {"records": 50})
    log.write_state("failed", error="the disk is full")
    lines = read_progress_log(path)
    assert [line["state"] for line in lines] == ["starting", "running", "failed"]
    assert all(line["pipeline"] == "delays" and line["at"].endswith("Z") for line in lines)
    assert (lines[1]["rows"], lines[1]["written"], lines[1]["deadLetters"], lines[1]["lag"]) == (
        60000,
        12,
        3,
        {"records": 50},
    )
    assert lines[2]["error"] == "the disk is full"
    with path.open("a") as file:
        file.write("x" * 9_000_000 + "\n")
    log.write_state("stopped")
    assert len(path.read_text().splitlines()) == 1
    assert path.with_name("progress.jsonl.1").exists()
