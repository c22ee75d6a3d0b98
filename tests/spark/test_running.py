"""Pipelines on a real broker while they run: stops, lag, tables, joins. The tests share one JVM,
and each reads at most a few hundred records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla_spark.errors import PipelineError
from tests.spark.conftest import Line, Runner, Topics, count_written, events, ids


def test_pipeline_that_is_stopped_between_batches_writes_nothing_twice(pipeline: Runner, topics: Topics) -> None:
    topics.create("stop-in", "stop-out", partitions=2)
    topics.write("stop-in", *({"id": number} for number in range(400)))
    spec = {
        "sources": {"events": events("stop-in", maxOffsetsPerTrigger=20)},
        "sinks": [{"from": "events", "topic": "stop-out"}],
    }
    lines = pipeline(spec, stop_when=lambda seen: count_written(seen) >= 60)
    assert [line["state"] for line in lines if line["state"] != "running"] == ["starting", "stopping", "stopped"]
    before = len(topics.read("stop-out"))
    assert 60 <= before < 400
    assert before == count_written(lines)
    pipeline(spec)
    messages = topics.read("stop-out")
    assert sorted(message.json["id"] for message in messages) == list(range(400))
    marks = {(message.headers["ottla.batch"], message.headers["ottla.sequence"]) for message in messages}
    assert len(marks) == 400


def test_lag_is_reported_and_committed_to_a_consumer_group(pipeline: Runner, topics: Topics) -> None:
    topics.create("lag-in", "lag-out", partitions=2)
    topics.write("lag-in", *({"id": number} for number in range(100)))
    spec = {
        "sources": {"events": events("lag-in", maxOffsetsPerTrigger=40)},
        "sinks": [{"from": "events", "topic": "lag-out"}],
        "consumerGroup": "watched",
    }
    lines = [line for line in pipeline(spec) if "batch" in line]
    first, last = lines[0]["lag"], lines[-1]["lag"]
    assert 0 < first["records"] < 100
    assert first["seconds"] > 0
    assert sum(at["records"] for at in first["partitions"]["lag-in"].values()) == first["records"]
    assert (last["records"], last["seconds"]) == (0, 0.0)
    assert sum(topics.committed_offsets("watched", "lag-in", 2).values()) == 100


def test_committed_offset_is_that_of_the_slowest_sink_also_after_a_restart(pipeline: Runner, topics: Topics) -> None:
    topics.create("slow-in", "slow-out", "quick-out")
    (pipeline.folder / "steps.py").write_text(
        "import time\nfrom pathlib import Path\n\nfrom pyspark.sql import functions as F\n\n"
        "FOLDER = Path(__file__).parent\n\n\n"
        "def late(number):\n    while not (FOLDER / f'seen-{number}').exists():\n        time.sleep(0.05)\n"
        "    return number\n\n\n"
        "def slow(tables):\n    return tables['events'].select(F.udf(late, 'int')('id').alias('id'))\n"
    )
    spec = {
        "sources": {"events": events("slow-in")},
        "transforms": [{"name": "slow", "python": "steps.py:slow"}],
        "sinks": [{"from": "events", "topic": "quick-out"}, {"from": "slow", "topic": "slow-out"}],
        "consumerGroup": "slowest",
    }
    for number, before in enumerate((-1001, 1)):  # −1001: librdkafka's number for no committed offset
        topics.write("slow-in", {"id": number})
        seen: list[tuple[int, int]] = []

        def release_slow_sink_then_stop(
            lines: list[Line], seen: list[tuple[int, int]] = seen, go_on: Path = pipeline.folder / f"seen-{number}"
        ) -> bool:
            reported = {line["query"] for line in lines if "batch" in line}
            if reported == {"events"}:
                seen.append((topics.committed_offsets("slowest", "slow-in", 1)[0], len(ids(topics, "slow-out"))))
                go_on.touch()
            return "slow" in reported

        pipeline(spec, stop_when=release_slow_sink_then_stop)
        assert seen[0] == (before, number), "while one sink has committed and the other has not"
        assert all(committed <= written for committed, written in seen)
        assert topics.committed_offsets("slowest", "slow-in", 1) == {0: number + 1}
        assert ids(topics, "slow-out") == list(range(number + 1))


def test_records_written_during_a_batch_are_lag(pipeline: Runner, topics: Topics) -> None:
    topics.create("echo")
    topics.write("echo", {"id": 1}, {"id": 2})
    spec = {"sources": {"events": events("echo")}, "sinks": [{"from": "events", "topic": "echo"}]}
    (batch,) = [line for line in pipeline(spec) if "batch" in line]
    # Lag is counted in offsets: two records, and the marker of the transaction that wrote them.
    assert (batch["rows"], batch["lag"]["records"]) == (2, 3)


def test_table_has_the_latest_record_of_each_key_in_every_batch(pipeline: Runner, topics: Topics) -> None:
    topics.create("tab-in", "tab-out", "tab-dead")
    topics.create("tab-cities", cleanup_policy="compact")
    spec = {
        "sources": {
            "events": events("tab-in"),
            "cities": {
                "topic": "tab-cities",
                "mode": "table",
                "key": "code",
                "format": {"type": "json", "schema": "name STRING"},
            },
        },
        "transforms": [{"name": "named", "sql": "SELECT id, name FROM events LEFT JOIN cities ON city = code"}],
        "sinks": [{"from": "named", "topic": "tab-out"}],
        "deadLetter": {"topic": "tab-dead"},
    }

    def joined_name(number: int) -> Any:
        topics.write("tab-in", {"id": number, "city": "P"})
        pipeline(spec)
        return next(message.json["name"] for message in topics.read("tab-out") if message.json["id"] == number)

    topics.write("tab-cities", {"name": "Prag"}, {"name": "Praha"}, key="P")
    assert joined_name(1) == "Praha"
    topics.write("tab-cities", {"name": "Prague"}, key="P")
    topics.write("tab-cities", b"?", key="Q")
    assert joined_name(2) == "Prague"
    topics.write("tab-cities", None, key="P")
    assert joined_name(3) is None
    (letter,) = topics.read("tab-dead")
    assert (letter.key, letter.value, letter.headers["ottla.topic"]) == ("Q", b"?", "tab-cities")


def test_change_of_a_table_is_read_while_the_pipeline_runs(pipeline: Runner, topics: Topics) -> None:
    topics.create("live-in", "live-out", "live-cities")
    topics.write("live-cities", {"name": "old"}, key="P")
    topics.write("live-in", {"id": 1, "city": "P"})
    spec = {
        "sources": {
            "events": events("live-in"),
            "cities": {
                "topic": "live-cities",
                "mode": "table",
                "key": "code",
                "format": {"type": "json", "schema": "name STRING"},
            },
        },
        "transforms": [{"name": "named", "sql": "SELECT id, name FROM events JOIN cities ON city = code"}],
        "sinks": [{"from": "named", "topic": "live-out"}],
    }
    changed = False

    def change_then_stop(lines: list[Line]) -> bool:
        nonlocal changed
        if count_written(lines) == 1 and not changed:
            changed = True
            topics.write("live-cities", {"name": "new"}, key="P")
            topics.write("live-in", {"id": 2, "city": "P"})
        return count_written(lines) == 2

    pipeline(spec, stop_when=change_then_stop)
    assert sorted((message.json["id"], message.json["name"]) for message in topics.read("live-out")) == [
        (1, "old"),
        (2, "new"),
    ]


def test_re_created_topic_is_detected(pipeline: Runner, topics: Topics) -> None:
    topics.create("anew-in", "anew-out")
    topics.write("anew-in", {"id": 1})
    spec = {"sources": {"events": events("anew-in")}, "sinks": [{"from": "events", "topic": "anew-out"}]}
    pipeline(spec)
    topics.delete("anew-in")
    topics.create("anew-in")
    topics.write("anew-in", *({"id": number} for number in range(5)))
    with pytest.raises(PipelineError, match=r"the topic anew-in was re-created since the checkpoint was created"):
        pipeline(spec)
    assert ids(topics, "anew-out") == [1]


def test_duplicates_are_dropped_in_later_batches_too(pipeline: Runner, topics: Topics) -> None:
    topics.create("twice-in", "twice-out")
    spec = {
        "sources": {"events": events("twice-in", watermark={"column": "at", "delay": "1 hour"})},
        "sinks": [{"from": "events", "topic": "twice-out"}],
        "dedupe": {"columns": ["id"], "within": "2 hours"},
    }
    for _ in range(2):
        topics.write("twice-in", *({"id": number % 3, "at": "2013-01-01T10:00:00Z"} for number in range(6)))
        pipeline(spec)
    assert ids(topics, "twice-out") == [0, 1, 2]


def test_streams_are_joined_with_each_other_and_with_themselves(pipeline: Runner, topics: Topics) -> None:
    topics.create("left-in", "right-in", "both-out", "self-out", "both-dead")
    watermark = {"column": "at", "delay": "1 hour"}
    topics.write(
        "left-in", {"id": 1, "at": "2013-01-01T10:00:00Z", "city": "A"}, {"id": 2, "at": "2013-01-01T10:00:00Z"}, b"?"
    )
    topics.write("right-in", {"id": 1, "at": "2013-01-01T10:30:00Z", "city": "B"})
    spec = {
        "sources": {"a": events("left-in", watermark=watermark), "b": events("right-in", watermark=watermark)},
        "transforms": [
            {
                "name": "both",
                "sql": "SELECT a.id, a.city AS x, b.city AS y FROM a JOIN b ON a.id = b.id AND b.at >= a.at",
            },
            {"name": "self", "sql": "SELECT l.id, r.city AS x FROM a l JOIN a r ON l.id = r.id AND l.at = r.at"},
        ],
        "sinks": [{"from": "both", "topic": "both-out"}, {"from": "self", "topic": "self-out"}],
        "deadLetter": {"topic": "both-dead"},
    }
    lines = pipeline(spec)
    assert [message.json for message in topics.read("both-out")] == [{"id": 1, "x": "A", "y": "B"}]
    assert sorted((message.json["id"], message.json["x"]) for message in topics.read("self-out")) == [
        (1, "A"),
        (2, None),
    ]
    assert len(topics.read("both-dead")) == 1
    assert set(lines[-2]["lag"]["partitions"]) == {"left-in", "right-in"}


def test_suspended_pipeline_does_nothing(pipeline: Runner, topics: Topics, tmp_path: Path) -> None:
    lines = pipeline(
        {"sources": {"events": events("x")}, "sinks": [{"from": "events", "topic": "y"}], "state": "suspended"}
    )
    assert [line["state"] for line in lines] == ["suspended"]
    assert not (tmp_path / "checkpoint").exists()


def test_first_run_starts_at_the_time_of_its_starting_offsets(pipeline: Runner, topics: Topics) -> None:
    topics.create("time-in", "time-out", "time-dead", partitions=2)
    for second in range(10):
        value = b"?" if second in (3, 7) else json.dumps({"id": second}).encode()
        topics.producer.produce("time-in", value, partition=0, timestamp=1_577_836_800_000 + second * 1000)
    topics.producer.produce("time-in", b'{"id": 99}', partition=1, timestamp=1_577_836_800_000)
    topics.producer.flush()
    spec = {
        "sources": {"events": events("time-in", startingOffsets="2020-01-01T01:00:05+01:00")},
        "sinks": [{"from": "events", "topic": "time-out"}],
        "deadLetter": {"topic": "time-dead"},
    }
    pipeline(spec)
    assert ids(topics, "time-out") == [5, 6, 8, 9]
    assert [message.headers["ottla.offset"] for message in topics.read("time-dead")] == ["7"]
    topics.write("time-in", {"id": 100})
    pipeline(spec)
    assert ids(topics, "time-out") == [5, 6, 8, 9, 100], "later runs resume from the checkpoint"
