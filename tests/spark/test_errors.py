"""Errors of pipelines that cannot start, or that fail: one sentence, which names the field or the
object that is wrong.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ottla_spark.errors import PipelineError
from ottla_spark.streaming.cases import plan_pipeline
from tests.spark.conftest import Runner, Topics, events, parse_spec


def test_error_in_python_is_reported_with_the_type_of_the_exception(pipeline: Runner, topics: Topics) -> None:
    topics.create("err-in")
    topics.write("err-in", {"id": 1})
    (pipeline.folder / "steps.py").write_text(
        "from pyspark.sql import functions as F\n\n\ndef early(tables):\n    return tables['nobody']\n\n\n"
        "def late(tables):\n    broken = F.udf(lambda number: 1 // (number - 1), 'int')\n"
        "    return tables['events'].select(broken('id').alias('id'))\n"
    )
    for function, sentence in [
        ("early", r"spec\.transforms\[0\] \(x\): steps.py:early raised KeyError: 'nobody'"),
        ("late", r"Python raised ZeroDivisionError: .*by zero"),
    ]:
        spec = {
            "sources": {"events": events("err-in")},
            "transforms": [{"name": "x", "python": f"steps.py:{function}"}],
            "sinks": [{"from": "x", "console": {}}],
        }
        with pytest.raises(PipelineError) as raised:
            pipeline(spec)
        assert re.fullmatch(sentence, str(raised.value))  # one line: a traceback has more
        assert pipeline.lines[-1]["error"] == str(raised.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"transforms": [{"name": "x", "sql": "SELECT * FROM evnts"}]},
            r"^spec\.transforms\[0\] \(x\): there is no source or step `evnts` \(line 1, pos 14\); there are events$",
        ),
        (
            {"transforms": [{"name": "x", "sql": "SELECT id,\n  cty FROM events"}]},
            r"^spec\.transforms\[0\] \(x\): there is no column `cty` \(line 2, pos 2\); the nearest are .*`city`",
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
def test_error_is_one_sentence_that_names_the_field(
    pipeline: Runner, topics: Topics, change: dict[str, Any], sentence: str
) -> None:
    if "wrong-in" not in topics.admin.list_topics(timeout=30).topics:
        topics.create("wrong-in", "wrong-out")
    spec = {
        "sources": {"events": events("wrong-in")},
        "transforms": [{"name": "x", "sql": "SELECT * FROM events"}],
        "sinks": [{"from": "x", "topic": "wrong-out"}],
    }
    with pytest.raises(PipelineError) as raised:
        pipeline({**spec, **change})
    assert re.search(sentence, str(raised.value))
    assert "\n" not in str(raised.value)
    assert pipeline.lines[-1]["error"] == str(raised.value)


SUMS = {"transforms": [{"name": "x", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"}]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        (
            {"sources": {"events": events("in", watermark={"column": "id", "delay": "1h"})}},
            (
                r'^spec\.sources\.events\.watermark: The event time `id` has the invalid type "INT", but '
                r'expected "TIMESTAMP"\.$'
            ),
        ),
        (
            {"sources": {"events": events("in", watermark={"column": "when", "delay": "1h"})}},
            r"^spec\.sources\.events\.watermark: there is no column `when`",
        ),
        (SUMS, "^sink x: Invalid streaming output mode: append"),
        ({**SUMS, "sinks": [{"from": "x", "topic": "out", "outputMode": "update"}]}, None),
        (
            {"sinks": [{"from": "x", "topic": "out", "key": ["id"], "outputMode": "update", "deleteWhen": "gone"}]},
            "^sink x: deleteWhen: there is no column `gone`",
        ),
    ],
)
def test_validate_finds_what_a_query_would_reject(tmp_path: Path, change: dict[str, Any], sentence: str | None) -> None:
    spec = {
        "sources": {"events": events("in")},
        "transforms": [{"name": "x", "sql": "SELECT * FROM events"}],
        "sinks": [{"from": "x", "topic": "out"}],
        **change,
    }
    if sentence is None:
        plan_pipeline(parse_spec(spec, tmp_path))
        return
    with pytest.raises(PipelineError, match=sentence) as raised:
        plan_pipeline(parse_spec(spec, tmp_path))
    assert "\n" not in str(raised.value)


def test_folder_that_is_not_writable_is_named(pipeline: Runner, topics: Topics) -> None:
    topics.create("place-in")
    (pipeline.folder / "taken").write_text("a file")
    spec = {"sources": {"events": events("place-in")}, "sinks": [{"from": "events", "parquet": {"path": "taken/rows"}}]}
    with pytest.raises(
        PipelineError, match=r"^sink events: parquet\.path: .*/taken/rows is not writable: Not a directory"
    ) as raised:
        pipeline(spec)
    assert "\n" not in str(raised.value)
    assert pipeline.lines[-1]["error"] == str(raised.value)
