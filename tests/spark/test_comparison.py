"""Comparison of a pipeline's sinks with those of another version (`compareWith`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.conftest import Line, Runner, Topics, events


@pytest.fixture
def old(topics: Topics, pipeline: Runner) -> Runner:
    """Runs the old version, beside `pipeline`, which runs the new one."""
    return Runner(topics, pipeline.folder / "old", pipeline.conf)


def last_comparisons(lines: list[Line]) -> dict[str, dict[str, Any]]:
    """The last comparison of each sink."""
    last = next(line["comparisons"] for line in reversed(lines) if "comparisons" in line)
    return {it.pop("sink"): {name: value for name, value in it.items() if name != "at"} for it in last}


def version(source: str, *sinks: dict[str, Any], sql: str) -> dict[str, Any]:
    return {"sources": {"events": events(source)}, "transforms": [{"name": "rows", "sql": sql}], "sinks": list(sinks)}


def test_topics_of_two_versions_are_compared_by_key_in_the_fields_that_both_have(
    pipeline: Runner, old: Runner, topics: Topics
) -> None:
    topics.create("compare-in", "counts-1", "counts-2", "log-1", "log-2")
    topics.write("compare-in", *({"id": number, "city": "ABC"[number % 3]} for number in range(30)))
    counts = {"from": "rows", "key": ["city"], "outputMode": "update"}
    group = "SELECT city, count(*) AS n, '{0}' AS version FROM events {1} GROUP BY city"
    old(version("compare-in", {**counts, "topic": "counts-1"}, sql=group.format("1", "")), name="v1")
    new = {**counts, "topic": "counts-2", "compareWith": "counts-1"}
    lines = pipeline(version("compare-in", new, sql=group.format("2", "WHERE NOT (city = 'A' AND id > 20)")), name="v2")
    assert last_comparisons(lines) == {"rows": {"oldRows": 3, "newRows": 3, "different": 3}}, (
        "the column version differs"
    )

    same = "SELECT city, count(*) AS n, true AS added FROM events {} GROUP BY city"
    pipeline.folder = pipeline.folder / "again"
    topics.create("counts-3")
    new = {**counts, "topic": "counts-3", "compareWith": "counts-1"}
    lines = pipeline(version("compare-in", new, sql=same.format("WHERE NOT (city = 'A' AND id > 20)")), name="v3")
    assert last_comparisons(lines) == {"rows": {"oldRows": 3, "newRows": 3, "equal": 2, "different": 1}}


def test_files_of_two_versions_are_compared_row_by_row_and_duplicates_count(
    pipeline: Runner, old: Runner, topics: Topics
) -> None:
    topics.create("rows-in")
    topics.write("rows-in", *({"id": number // 2, "city": "A"} for number in range(20)))
    rows = "SELECT id, city FROM events"
    old(version("rows-in", {"from": "rows", "parquet": {"path": "v1"}}, sql=rows), name="v1")
    sink = {"from": "rows", "parquet": {"path": "v2"}, "compareWith": "old/v1"}
    lines = pipeline(version("rows-in", sink, sql=f"{rows} WHERE _offset != 3"), name="v2")
    assert last_comparisons(lines) == {"rows": {"oldRows": 20, "newRows": 19, "equal": 19, "onlyOld": 1}}


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("delta", marks=pytest.mark.slow)])
def test_tables_of_two_versions_are_compared_by_key(pipeline: Runner, old: Runner, topics: Topics, kind: str) -> None:
    topics.create(f"compared-{kind}-in")
    topics.write(f"compared-{kind}-in", *({"id": number, "city": "ABC"[number % 3]} for number in range(30)))
    catalog = {"type": "hadoop", "warehouse": str(pipeline.folder / "lake")}

    def table(name: str) -> dict[str, Any]:
        if kind == "delta":
            return {"delta": {"path": str(pipeline.folder / name)}}
        return {"iceberg": {"table": f"lake.db.{name}", "catalog": catalog}}

    sink = {"from": "rows", "key": ["city"], "outputMode": "update"}
    count = "SELECT city, count(*) AS n FROM events {} GROUP BY city"
    old(version(f"compared-{kind}-in", {**sink, **table("v1")}, sql=count.format("")), name="v1")
    new = {**sink, **table("v2"), "compareWith": "lake.db.v1" if kind == "iceberg" else "v1"}
    fewer = count.format("WHERE city != 'B' AND NOT (city = 'A' AND id > 20)")
    lines = pipeline(version(f"compared-{kind}-in", new, sql=fewer), name="v2")
    assert last_comparisons(lines) == {"rows": {"oldRows": 3, "newRows": 2, "equal": 1, "different": 1, "onlyOld": 1}}


def test_a_running_pipeline_compares_when_it_has_caught_up(pipeline: Runner, old: Runner, topics: Topics) -> None:
    topics.create("beside-in", "beside-1", "beside-2")
    topics.write("beside-in", *({"id": number, "city": "A"} for number in range(10)))
    rows = "SELECT id, city FROM events"
    old(version("beside-in", {"from": "rows", "topic": "beside-1"}, sql=rows), name="v1")
    spec = version("beside-in", {"from": "rows", "topic": "beside-2", "compareWith": "beside-1"}, sql=rows)
    lines = pipeline(spec, name="v2", stop_when=lambda seen: any("comparisons" in line for line in seen))
    assert last_comparisons(lines) == {"rows": {"oldRows": 10, "newRows": 10, "equal": 10}}
    assert lines[-1]["state"] == "stopped"


def test_target_that_cannot_be_read_is_named(pipeline: Runner, topics: Topics) -> None:
    topics.create("lone-in")
    topics.write("lone-in", {"id": 1, "city": "A"})
    sink = {"from": "rows", "parquet": {"path": "v2"}, "compareWith": "nowhere"}
    lines = pipeline(version("lone-in", sink, sql="SELECT id FROM events"), name="v2")
    assert "nowhere" in last_comparisons(lines)["rows"]["error"]
    assert lines[-1]["state"] == "finished"
