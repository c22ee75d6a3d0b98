"""Pipelines on a real broker, one behaviour each. They share one JVM, and a few hundred records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ottla_spark.trouble import Trouble
from tests.spark.conftest import Line, Runner, Topics, written

EVENTS = {"topic": "", "format": {"type": "json", "schema": "id INT NOT NULL, at TIMESTAMP, city STRING"}}


def events(topic: str, **more: object) -> dict[str, Any]:
    return {**EVENTS, "topic": topic, **more}


def rows_of(sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB finds."""
    return duckdb.connect().execute(sql).fetchall()


def ids(topics: Topics, topic: str) -> list[int]:
    return sorted(message.json["id"] for message in topics.read(topic))


def test_rows_that_do_not_decode_or_break_an_expectation_are_set_aside(pipeline: Runner, topics: Topics) -> None:
    topics.make("dl-in", "dl-out", "dl-dead")
    spec = {
        "sources": {"events": events("dl-in")},
        "transforms": [
            {
                "name": "known",
                "sql": "SELECT * FROM events",
                "expect": [{"name": "has_city", "sql": "city <> ''"}],
            }
        ],
        "sinks": [{"from": "known", "topic": "dl-out", "key": ["id"]}],
        "deadLetter": {"topic": "dl-dead"},
    }
    topics.write(
        "dl-in",
        {"id": 1, "city": "Prague"},
        b"{",
        {"id": "one"},
        {"city": "Zurau"},
        {"id": 2, "city": ""},
        {"id": 3},
        None,
    )
    topics.write("dl-in", {"id": 4, "city": "Berlin"}, key="k")
    lines = pipeline(spec)
    assert ids(topics, "dl-out") == [1, 4]
    dead = {int(letter.headers["ottla.offset"] or -1): letter for letter in topics.read("dl-dead")}
    assert {offset: letter.headers["ottla.reason"] for offset, letter in dead.items()} == {
        1: "the value is not JSON that fits the schema",
        2: "the value is not JSON that fits the schema",
        3: "the column id is missing or null",
        4: "known expects has_city: city <> ''",
        5: "known expects has_city: city <> ''",
        6: "the record has no value",
    }
    assert dead[1].value == b"{"
    assert dead[4].json == {"id": 2, "at": None, "city": ""}
    assert dead[1].headers["ottla.pipeline"] == "p"
    assert (dead[1].headers["ottla.topic"], dead[1].headers["ottla.partition"]) == ("dl-in", "0")
    assert sum(line.get("deadLetters", 0) for line in lines) == 6
    assert (lines[0]["state"], lines[-1]["state"]) == ("starting", "finished")

    topics.write("dl-in", b"}")
    pipeline(spec)
    assert len(topics.read("dl-dead")) == 7, "letters are not written again"
    assert len(topics.read("dl-out")) == 2

    # As if the process had been killed after the batch and before its letters: they are found when it goes on.
    (pipeline.folder / "checkpoint" / ".letters.json.crc").unlink()
    (pipeline.folder / "checkpoint" / "letters.json").write_text('{"dl-in": {"0": 8}}')
    topics.write("dl-in", {"id": 5, "city": "Riva"})
    pipeline(spec)
    letters = [letter.headers["ottla.offset"] for letter in topics.read("dl-dead")]
    assert letters[7:] == ["8"]


def test_too_many_rows_set_aside_end_the_pipeline_and_can_be_looked_at(pipeline: Runner, topics: Topics) -> None:
    topics.make("rate-in", "rate-out", "rate-dead")
    topics.write("rate-in", {"id": 1}, b"?", b"?")
    spec = {
        "sources": {"events": events("rate-in")},
        "sinks": [{"from": "events", "topic": "rate-out"}],
        "deadLetter": {"topic": "rate-dead", "maxRate": 0.5},
    }
    with pytest.raises(Trouble, match=r"2 of 3 rows of a batch were set aside, more than maxRate 0\.5 allows"):
        pipeline(spec)
    assert pipeline.lines[-1]["state"] == "failed"
    assert "maxRate" in pipeline.lines[-1]["error"]
    assert len(topics.read("rate-dead")) == 2


def test_without_a_dead_letter_topic_the_record_is_named(pipeline: Runner, topics: Topics) -> None:
    topics.make("strict-in", "strict-out")
    topics.write("strict-in", {"id": 1}, {"id": None})
    spec = {"sources": {"events": events("strict-in")}, "sinks": [{"from": "events", "topic": "strict-out"}]}
    with pytest.raises(
        Trouble,
        match=r"^topic strict-in, partition 0, offset 1: the column id is missing or null; with a deadLetter topic",
    ):
        pipeline(spec)


def test_sums_that_break_an_expectation_are_set_aside(pipeline: Runner, topics: Topics) -> None:
    topics.make("sum-in", "sum-out", "sum-dead")
    topics.write("sum-in", *({"id": number, "city": city} for number, city in enumerate(["A", "A", "B"])))
    spec = {
        "sources": {"events": events("sum-in")},
        "transforms": [
            {
                "name": "sums",
                "sql": "SELECT city, count(*) AS n FROM events GROUP BY city",
                "expect": [{"name": "many", "sql": "n > 1"}],
            }
        ],
        "sinks": [{"from": "sums", "topic": "sum-out", "key": ["city"], "outputMode": "update"}],
        "deadLetter": {"topic": "sum-dead"},
    }
    lines = pipeline(spec)
    assert [message.json for message in topics.read("sum-out")] == [{"city": "A", "n": 2}]
    (letter,) = topics.read("sum-dead")
    assert letter.json == {"city": "B", "n": 1}
    assert letter.headers["ottla.offset"] is None
    assert (written(lines), sum(line.get("deadLetters", 0) for line in lines)) == (1, 1)


def test_a_pipeline_that_is_stopped_between_batches_writes_nothing_twice(pipeline: Runner, topics: Topics) -> None:
    topics.make("stop-in", "stop-out", partitions=2)
    topics.write("stop-in", *({"id": number} for number in range(400)))
    spec = {
        "sources": {"events": events("stop-in", maxOffsetsPerTrigger=20)},
        "sinks": [{"from": "events", "topic": "stop-out"}],
    }
    lines = pipeline(spec, stop_when=lambda seen: written(seen) >= 60)
    assert [line["state"] for line in lines if line["state"] != "running"] == ["starting", "stopping", "stopped"]
    before = len(topics.read("stop-out"))
    assert 60 <= before < 400
    assert before == written(lines)
    pipeline(spec)
    messages = topics.read("stop-out")
    assert sorted(message.json["id"] for message in messages) == list(range(400))
    marks = {(message.headers["ottla.batch"], message.headers["ottla.sequence"]) for message in messages}
    assert len(marks) == 400


def test_lag_is_reported_and_committed_to_a_consumer_group(pipeline: Runner, topics: Topics) -> None:
    topics.make("lag-in", "lag-out", partitions=2)
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
    assert sum(topics.committed("watched", "lag-in", 2).values()) == 100


def test_a_table_is_the_newest_record_of_each_key_whenever_a_batch_runs(pipeline: Runner, topics: Topics) -> None:
    topics.make("tab-in", "tab-out", "tab-dead")
    topics.make("tab-cities", cleanup_policy="compact")
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

    def step(number: int) -> Any:
        topics.write("tab-in", {"id": number, "city": "P"})
        pipeline(spec)
        return next(message.json["name"] for message in topics.read("tab-out") if message.json["id"] == number)

    topics.write("tab-cities", {"name": "Prag"}, {"name": "Praha"}, key="P")
    assert step(1) == "Praha"
    topics.write("tab-cities", {"name": "Prague"}, key="P")
    topics.write("tab-cities", b"?", key="Q")
    assert step(2) == "Prague"
    topics.write("tab-cities", None, key="P")
    assert step(3) is None
    (letter,) = topics.read("tab-dead")
    assert (letter.key, letter.value, letter.headers["ottla.topic"]) == ("Q", b"?", "tab-cities")


def test_a_table_changes_while_the_pipeline_runs(pipeline: Runner, topics: Topics) -> None:
    topics.make("live-in", "live-out", "live-cities")
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
        if written(lines) == 1 and not changed:
            changed = True
            topics.write("live-cities", {"name": "new"}, key="P")
            topics.write("live-in", {"id": 2, "city": "P"})
        return written(lines) == 2

    pipeline(spec, stop_when=change_then_stop)
    assert sorted((message.json["id"], message.json["name"]) for message in topics.read("live-out")) == [
        (1, "old"),
        (2, "new"),
    ]


def test_a_topic_that_was_made_anew_is_noticed(pipeline: Runner, topics: Topics) -> None:
    topics.make("anew-in", "anew-out")
    topics.write("anew-in", {"id": 1})
    spec = {"sources": {"events": events("anew-in")}, "sinks": [{"from": "events", "topic": "anew-out"}]}
    pipeline(spec)
    topics.delete("anew-in")
    topics.make("anew-in")
    topics.write("anew-in", *({"id": number} for number in range(5)))
    with pytest.raises(Trouble, match=r"the topic anew-in was deleted and made anew since the checkpoint was begun"):
        pipeline(spec)
    assert ids(topics, "anew-out") == [1]


def test_parquet_holds_each_row_once_for_any_reader(pipeline: Runner, topics: Topics) -> None:
    topics.make("file-in", partitions=2)
    topics.write("file-in", *({"id": number, "city": "AB"[number % 2]} for number in range(50)))
    spec = {
        "sources": {"events": events("file-in", maxOffsetsPerTrigger=20)},
        "sinks": [{"from": "events", "parquet": {"path": "rows", "partitionBy": ["city"]}}],
    }
    pipeline(spec)
    found = rows_of(
        f"SELECT id, city FROM read_parquet('{pipeline.folder}/rows/**/*.parquet', hive_partitioning = true)"
    )
    assert sorted(found) == [(number, "AB"[number % 2]) for number in range(50)]


def test_a_complete_result_replaces_the_one_before(pipeline: Runner, topics: Topics) -> None:
    topics.make("whole-in")
    spec = {
        "sources": {"events": events("whole-in")},
        "transforms": [{"name": "sums", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"}],
        "sinks": [{"from": "sums", "parquet": {"path": "sums"}, "outputMode": "complete"}],
    }
    for n in (1, 2):
        topics.write("whole-in", {"id": n, "city": "A"})
        pipeline(spec)
        assert rows_of(f"SELECT city, n FROM read_parquet('{pipeline.folder}/sums/*.parquet')") == [("A", n)]


def test_rows_seen_before_are_left_out_in_later_batches_too(pipeline: Runner, topics: Topics) -> None:
    topics.make("twice-in", "twice-out")
    spec = {
        "sources": {"events": events("twice-in", watermark={"column": "at", "delay": "1 hour"})},
        "sinks": [{"from": "events", "topic": "twice-out"}],
        "dedupe": {"columns": ["id"], "within": "2 hours"},
    }
    for _ in range(2):
        topics.write("twice-in", *({"id": number % 3, "at": "2013-01-01T10:00:00Z"} for number in range(6)))
        pipeline(spec)
    assert ids(topics, "twice-out") == [0, 1, 2]


def test_raw_records_pass_unchanged_and_python_steps_are_called(pipeline: Runner, topics: Topics) -> None:
    topics.make("raw-in", "raw-out", "loud-out")
    topics.write("raw-in", b"\x00\xff", key="k")
    (pipeline.folder / "steps.py").write_text(
        "from pyspark.sql import functions as F\n\n\ndef loud(tables):\n"
        "    return tables['records'].select(F.upper(F.col('key').cast('string')).alias('who'), F.length('value').alias('bytes'))\n"
    )
    spec = {
        "sources": {"records": {"topic": "raw-in", "format": {"type": "raw"}}},
        "transforms": [{"name": "loud", "python": "steps.py:loud"}],
        "sinks": [
            {"from": "records", "topic": "raw-out"},
            {"from": "loud", "topic": "loud-out", "key": ["who", "bytes"]},
        ],
    }
    pipeline(spec)
    assert [(message.key, message.value) for message in topics.read("raw-out")] == [("k", b"\x00\xff")]
    assert [(message.key, message.json) for message in topics.read("loud-out")] == [("K|2", {"who": "K", "bytes": 2})]


def test_streams_are_joined_with_each_other_and_with_themselves(pipeline: Runner, topics: Topics) -> None:
    topics.make("left-in", "right-in", "both-out", "self-out", "both-dead")
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


def test_an_error_in_python_is_said_without_its_traceback(pipeline: Runner, topics: Topics) -> None:
    topics.make("err-in")
    topics.write("err-in", {"id": 1})
    (pipeline.folder / "steps.py").write_text(
        "from pyspark.sql import functions as F\n\n\ndef early(tables):\n    return tables['nobody']\n\n\n"
        "def late(tables):\n    broken = F.udf(lambda number: 1 // (number - 1), 'int')\n"
        "    return tables['events'].select(broken('id').alias('id'))\n"
    )
    for function, sentence in [
        ("early", r"spec\.transforms\[0\] \(x\): steps.py:early raised KeyError: 'nobody'"),
        ("late", r"Python raised ZeroDivisionError"),
    ]:
        spec = {
            "sources": {"events": events("err-in")},
            "transforms": [{"name": "x", "python": f"steps.py:{function}"}],
            "sinks": [{"from": "x", "console": {}}],
        }
        with pytest.raises(Trouble) as trouble:
            pipeline(spec)
        assert re.match(sentence, str(trouble.value))


def test_the_console_shows_rows(pipeline: Runner, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    topics.make("seen-in")
    topics.write("seen-in", *({"id": number} for number in range(5)))
    pipeline({"sources": {"events": events("seen-in")}, "sinks": [{"from": "events", "console": {"rows": 2}}]})
    shown = capsys.readouterr().out
    assert shown.startswith("events, batch 0\n")
    assert "_offset" not in shown
    assert "only showing top 2 rows" in shown


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"transforms": [{"name": "x", "sql": "SELECT * FROM evnts"}]},
            r"spec\.transforms\[0\] \(x\): .*`evnts` cannot be found",
        ),
        ({"transforms": [{"name": "x", "sql": "SELEC"}]}, r"spec\.transforms\[0\] \(x\): Syntax error"),
        ({"transforms": [{"name": "x", "python": "gone.py:f"}]}, r"gone\.py:f: there is no file"),
        ({"sources": {"events": events("wrong-none")}}, "the topic wrong-none does not exist"),
        (
            {"sinks": [{"from": "x", "topic": "wrong-out", "key": ["nr"]}]},
            "sink x: x has no column nr; it has id, at, city",
        ),
        (
            {"transforms": [{"name": "x", "sql": "SELECT * FROM events", "expect": [{"name": "e", "sql": "nr > 1"}]}]},
            r"spec\.transforms\[0\] \(x\)\.expect: .*`nr`",
        ),
        (
            {"sources": {"events": events("wrong-in", format={"type": "json", "schema": "id INTEGR"})}},
            r"spec\.sources\.events\.format\.schema: .*INTEGR",
        ),
        (
            {"sources": {"events": events("wrong-in", watermark={"column": "id", "delay": "1h"})}},
            r"spec\.sources\.events\.watermark: ",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    pipeline: Runner, topics: Topics, change: dict[str, Any], sentence: str
) -> None:
    if "wrong-in" not in topics.admin.list_topics(timeout=30).topics:
        topics.make("wrong-in", "wrong-out")
    spec = {
        "sources": {"events": events("wrong-in")},
        "transforms": [{"name": "x", "sql": "SELECT * FROM events"}],
        "sinks": [{"from": "x", "topic": "wrong-out"}],
    }
    with pytest.raises(Trouble) as trouble:
        pipeline({**spec, **change})
    assert re.search(sentence, str(trouble.value))
    assert "\n" not in str(trouble.value)
    assert pipeline.lines[-1]["error"] == str(trouble.value)


def test_a_suspended_pipeline_does_nothing(pipeline: Runner, topics: Topics, tmp_path: Path) -> None:
    lines = pipeline(
        {"sources": {"events": events("x")}, "sinks": [{"from": "events", "topic": "y"}], "state": "suspended"}
    )
    assert [line["state"] for line in lines] == ["suspended"]
    assert not (tmp_path / "checkpoint").exists()
