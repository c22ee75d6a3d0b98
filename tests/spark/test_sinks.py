"""Sinks (topics, files, console) on a real broker."""

from __future__ import annotations

import threading
from typing import Any

import duckdb
import pytest
from py4j.clientserver import JavaClient
from pyspark.sql.utils import ForeachBatchFunction

from ottla_spark.streaming.event_listener import EventListener
from tests.spark.conftest import Runner, Topics, events


def rows_of(sql: str) -> list[tuple[Any, ...]]:
    """Result of a query in DuckDB."""
    return duckdb.connect().execute(sql).fetchall()


def test_parquet_has_each_row_once(pipeline: Runner, topics: Topics) -> None:
    topics.create("file-in", partitions=2)
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


def test_complete_result_replaces_the_previous_one(pipeline: Runner, topics: Topics) -> None:
    topics.create("whole-in")
    spec = {
        "sources": {"events": events("whole-in")},
        "transforms": [{"name": "sums", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"}],
        "sinks": [{"from": "sums", "parquet": {"path": "sums"}, "outputMode": "complete"}],
    }
    for n in (1, 2):
        topics.write("whole-in", {"id": n, "city": "A"})
        pipeline(spec)
        assert rows_of(f"SELECT city, n FROM read_parquet('{pipeline.folder}/sums/*.parquet')") == [("A", n)]


def test_raw_records_are_unchanged_and_python_steps_are_called(pipeline: Runner, topics: Topics) -> None:
    topics.create("raw-in", "raw-out", "loud-out")
    topics.write("raw-in", b"\x00\xff", b"", key="k")
    (pipeline.folder / "steps.py").write_text(
        "from pyspark.sql import functions as F\n\n\ndef loud(tables):\n"
        "    return tables['records'].select(F.upper(F.col('key').cast('string')).alias('who'), "
        "F.length('value').alias('bytes'))\n"
    )
    spec = {
        "sources": {"records": {"topic": "raw-in", "format": {"type": "raw"}}},
        "transforms": [{"name": "loud", "python": "steps.py:loud"}],
        "sinks": [
            {"from": "records", "topic": "raw-out"},
            {"from": "loud", "topic": "loud-out", "key": ["who", "bytes"], "delivery": "atLeastOnce"},
        ],
    }
    pipeline(spec)
    assert [(message.key, message.value) for message in topics.read("raw-out")] == [("k", b"\x00\xff"), ("k", b"")]
    assert sorted((message.key, message.json["bytes"]) for message in topics.read("loud-out")) == [
        ("K|0", 0),
        ("K|2", 2),
    ]


@pytest.mark.parametrize("delivery", ["exactlyOnce", "atLeastOnce"])
def test_row_that_is_deleted_is_a_record_without_a_value(pipeline: Runner, topics: Topics, delivery: str) -> None:
    topics.create(f"gone-in-{delivery}", f"gone-out-{delivery}")
    spec = {
        "sources": {"events": events(f"gone-in-{delivery}")},
        "transforms": [{"name": "rows", "sql": "SELECT id, city = 'gone' AS _is_gone FROM events"}],
        "sinks": [
            {
                "from": "rows",
                "topic": f"gone-out-{delivery}",
                "delivery": delivery,
                "key": ["id"],
                "outputMode": "update",
                "deleteWhen": "_is_gone",
            }
        ],
    }
    topics.write(f"gone-in-{delivery}", {"id": 1, "city": "A"}, {"id": 2, "city": "gone"}, {"id": 3})
    pipeline(spec)
    found = {it.key: it.value for it in topics.read(f"gone-out-{delivery}")}
    assert found == {"1": b'{"id":1}', "2": b"", "3": b'{"id":3}'}


def count_requests(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """A list to which each later call of the method adds the number of its requests to the JVM."""
    requests: list[int] = []
    in_thread = threading.local()
    send, method = JavaClient.send_command, getattr(owner, name)

    def count_request(client: Any, *arguments: Any) -> Any:
        if hasattr(in_thread, "call"):
            requests[in_thread.call] += 1
        return send(client, *arguments)

    def count_call(*arguments: Any) -> None:
        requests.append(0)
        in_thread.call = len(requests) - 1
        method(*arguments)
        del in_thread.call

    monkeypatch.setattr(JavaClient, "send_command", count_request)
    monkeypatch.setattr(owner, name, count_call)
    return requests


@pytest.mark.parametrize(
    ("delivery", "owner", "method", "maximum"),
    [
        ("atLeastOnce", ForeachBatchFunction, "call", 45),
        ("exactlyOnce", ForeachBatchFunction, "call", 130),
        ("atLeastOnce", EventListener, "onQueryProgress", 9),
    ],
)
def test_batches_and_their_events_take_few_requests_to_the_jvm(
    pipeline: Runner,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    delivery: str,
    owner: type,
    method: str,
    maximum: int,
) -> None:
    source, target = f"few-in-{delivery}-{method}", f"few-out-{delivery}-{method}"
    topics.create(source, target)
    topics.write(source, *({"id": number, "city": "A"} for number in range(3)))
    requests = count_requests(monkeypatch, owner, method)
    sink = {"from": "events", "topic": target, "key": ["city"], "delivery": delivery}
    pipeline({"sources": {"events": events(source, maxOffsetsPerTrigger=1)}, "sinks": [sink]})
    assert len(requests) == 3
    assert requests[-1] < maximum, "each request takes a fraction of a millisecond"


def test_console_sink_prints_rows(pipeline: Runner, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    topics.create("seen-in")
    topics.write("seen-in", *({"id": number} for number in range(5)))
    pipeline({"sources": {"events": events("seen-in")}, "sinks": [{"from": "events", "console": {"rows": 2}}]})
    shown = capsys.readouterr().out
    assert shown.startswith("events, batch 0\n")
    assert "_offset" not in shown
    assert "only showing top 2 rows" in shown
