"""Steps with state on real Spark: session windows, joins of streams, union, and a class that keeps
state. The sink `foreach` receives the rows of that class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from ottla_spark.errors import PipelineError
from ottla_spark.streaming.cases import local_session, plan_in_session, run_cases
from tests.spark.conftest import Runner, Topics, events, parse_spec

WATERMARK: Final = {"column": "at", "delay": "1 minute"}
STEPS: Final = '''
import json

import pandas
from pyspark.sql.streaming import StatefulProcessor


class Visits(StatefulProcessor):
    """Counts the rows of a city. B is closed when the watermark advances after it."""

    def init(self, handle):
        self.handle = handle
        self.visits = handle.getValueState("visits", "n INT")

    def handleInputRows(self, key, rows, timerValues):
        visits = (self.visits.get()[0] if self.visits.exists() else 0) + sum(len(it) for it in rows)
        self.visits.update((visits,))
        if key[0] == "B":
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 1)
        yield pandas.DataFrame({"city": [key[0]], "visits": [visits], "closed": [False]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        visits = self.visits.get()[0]
        self.visits.clear()
        yield pandas.DataFrame({"city": [key[0]], "visits": [visits], "closed": [True]})

    def close(self):
        pass


def send(row):
    with open("FOLDER/sent.jsonl", "a") as file:
        file.write(json.dumps(row.asDict()) + "\\n")
'''


STATE: Final = {
    "from": "both",
    "key": ["city"],
    "processor": "steps.py:Visits",
    "columns": "city STRING, visits INT, closed BOOLEAN",
    "timers": "eventTime",
}


def event(id_: int, at: str, city: str | None = None) -> dict[str, Any]:
    return {"id": id_, "at": f"2013-01-01T{at}:00Z", "city": city}


def test_session_windows_are_written_when_the_watermark_has_passed_them(pipeline: Runner, topics: Topics) -> None:
    topics.create("ses-in", "ses-out")
    topics.write("ses-in", event(1, "10:00", "A"), event(2, "10:05", "A"), event(3, "10:30", "A"))
    topics.write("ses-in", event(4, "20:00", "B"))
    sql = (
        "SELECT city, count(*) AS n, session_window.end AS until FROM events "
        "GROUP BY city, session_window(at, '10 minutes')"
    )
    spec = {
        "sources": {"events": events("ses-in", watermark=WATERMARK)},
        "transforms": [{"name": "sessions", "sql": sql}],
        "sinks": [{"from": "sessions", "topic": "ses-out"}],
    }
    pipeline(spec)
    rows = [message.json for message in topics.read("ses-out")]
    assert sorted((row["city"], row["n"], row["until"][11:16]) for row in rows) == [
        ("A", 1, "10:40"),
        ("A", 2, "10:15"),
    ], "the session of B is open"


def test_outer_join_of_streams_writes_unmatched_rows_after_both_watermarks(pipeline: Runner, topics: Topics) -> None:
    topics.create("out-left", "out-right", "out-out")
    topics.write("out-left", event(1, "10:00", "A"), event(2, "10:00", "A"), event(9, "20:00", "A"))
    topics.write("out-right", event(1, "10:30", "B"))
    sql = "SELECT l.id, r.city FROM l LEFT JOIN r ON l.id = r.id AND r.at >= l.at AND r.at <= l.at + INTERVAL 1 HOUR"
    spec = {
        "sources": {
            name: events(f"out-{topic}", watermark=WATERMARK) for name, topic in (("l", "left"), ("r", "right"))
        },
        "transforms": [{"name": "joined", "sql": sql}],
        "sinks": [{"from": "joined", "topic": "out-out"}],
    }

    def joined() -> list[tuple[int, str | None]]:
        pipeline(spec)
        return sorted((message.json["id"], message.json["city"]) for message in topics.read("out-out"))

    assert joined() == [(1, "B")], "the watermark of the right stream has not passed the hour of 2"
    for name in ("left", "right"):
        topics.write(f"out-{name}", event(8, "21:00", "B"))
    assert joined() == [(1, "B"), (2, None), (8, "B")]


def test_class_keeps_state_of_two_streams_with_timers_and_a_function_receives_its_rows(
    pipeline: Runner, topics: Topics
) -> None:
    topics.create("tws-a", "tws-b")
    (pipeline.folder / "steps.py").write_text(STEPS.replace("FOLDER", str(pipeline.folder)))
    spec = {
        "sources": {name: events(f"tws-{name}", watermark=WATERMARK) for name in ("a", "b")},
        "transforms": [{"name": "both", "union": ["a", "b"]}, {"name": "visits", "transformWithState": STATE}],
        "sinks": [{"from": "visits", "foreach": {"python": "steps.py:send"}, "outputMode": "update"}],
    }
    sent = pipeline.folder / "sent.jsonl"
    rows: list[tuple[str, int, bool]] = []
    for time in ("10:00", "11:00"):
        topics.write("tws-a", event(1, time, "A"), event(2, time, "B"))
        topics.write("tws-b", event(3, time, "A"))
        pipeline(spec)
        rows = [(row["city"], row["visits"], row["closed"]) for row in map(json.loads, sent.read_text().splitlines())]
    assert sorted(rows) == [("A", 2, False), ("A", 4, False), *[("B", 1, False)] * 2, *[("B", 1, True)] * 2]


def test_cases_run_union_and_state_and_validation_names_what_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    case = tmp_path / "cases" / "two-streams"
    for folder in ("given", "expect"):
        (case / folder).mkdir(parents=True)
    spec: dict[str, Any] = {
        "sources": {name: events(name, watermark=WATERMARK) for name in ("a", "b")},
        "transforms": [{"name": "both", "union": ["a", "b"]}, {"name": "visits", "transformWithState": STATE}],
        "sinks": [{"from": "visits", "foreach": {"python": "steps.py:send"}, "outputMode": "update"}],
    }

    def write(file: str, *rows: object) -> None:
        (case / file).write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("given/a.jsonl", event(1, "10:00", "A"), event(2, "10:00", "C"))
    write("given/b.jsonl", event(3, "10:00", "A"))
    write("expect/visits.jsonl", {"city": "A", "visits": 2}, {"city": "C", "visits": 1})
    write("expect/both.jsonl", *({"id": number} for number in (1, 2, 3)))
    report: list[str] = []
    assert run_cases(parse_spec(spec, tmp_path), tmp_path / "cases", report.append) == 0, report
    state = spec["transforms"][1]["transformWithState"]
    del spec["sources"]["b"]["watermark"]
    spec["sources"]["b"]["format"] = {"type": "json", "schema": "id INT, at TIMESTAMP"}
    invalid: list[tuple[dict[str, Any], str]] = [
        ({}, "spec.transforms[0] (both): union: b has no column city, which a has"),
        ({"from": "b"}, "transformWithState.key: b has no column city; it has id, at"),
        ({"from": "b", "key": ["id"]}, "transformWithState.timers: eventTime needs rows with a watermark, and b has"),
        (
            {"from": "a", "processor": "steps.py:send"},
            "steps.py:send is not a class derived from pyspark.sql.streaming",
        ),
        ({"from": "a", "processor": "steps.py:Gone"}, "has no function or class Gone"),
        ({"from": "a", "columns": "city STRINK"}, "(visits): transformWithState.columns: "),
        (
            {"from": "a", "eventTime": "city"},
            "eventTime: 'city' is not a TIMESTAMP column of transformWithState.columns; those are: none",
        ),
    ]
    with local_session(parse_spec(spec, tmp_path)) as spark:
        for change, message in invalid:
            steps = [{"name": "visits", "transformWithState": {**state, **change}}] if change else spec["transforms"]
            with pytest.raises(PipelineError) as raised:
                plan_in_session(spark, parse_spec({**spec, "transforms": steps}, tmp_path))
            assert message in str(raised.value)
