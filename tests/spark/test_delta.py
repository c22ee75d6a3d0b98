"""The Delta sink, read back by delta-rs: upserts, columns that are added, and maintenance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable

from ottla_spark.errors import PipelineError
from tests.spark.conftest import Runner, Topics, events

UPDATE = {"key": ["city"], "outputMode": "update", "deleteWhen": "city = 'A' AND n > 2"}


def rows_of(table: DeltaTable, *columns: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in columns) for row in table.to_pyarrow_table().to_pylist())


def test_rows_are_appended_replaced_and_gain_columns(pipeline: Runner, topics: Topics) -> None:
    topics.create("delta-in", partitions=2)
    spec: dict[str, Any] = {
        "sources": {"events": events("delta-in")},
        "transforms": [
            {"name": "rows", "sql": "SELECT id, city, _offset FROM events"},
            {"name": "sums", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"},
            {"name": "all", "sql": "SELECT count(*) AS n FROM events"},
        ],
        "sinks": [
            {"from": "rows", "delta": {"path": "lake/rows", "partitionBy": ["city"]}},
            {"from": "sums", **UPDATE, "delta": {"path": "lake/sums"}},
            {"from": "all", "outputMode": "complete", "delta": {"path": "lake/whole"}},
        ],
    }
    topics.write("delta-in", {"id": 7}, *({"id": number, "city": "AB"[number % 2]} for number in range(4)))
    pipeline(spec)
    topics.write("delta-in", {"id": 8}, *({"id": 9, "city": city} for city in "AAC"))
    *_, sums, whole = spec["transforms"]
    more = {"name": "rows", "sql": "SELECT id, city, named_struct('n', id) AS nested FROM events"}
    pipeline({**spec, "transforms": [more, sums, whole]})
    lake = pipeline.folder / "lake"
    rows = DeltaTable(lake / "rows")
    assert rows.metadata().partition_columns == ["city"]
    found = rows_of(rows, "id", "city")
    assert found == Counter(
        [(7, None), (0, "A"), (1, "B"), (2, "A"), (3, "B"), (8, None), (9, "A"), (9, "A"), (9, "C")]
    )
    assert {row["id"] for row in rows.to_pyarrow_table().to_pylist() if row["nested"] == {"n": row["id"]}} == {8, 9}
    assert rows_of(DeltaTable(lake / "sums"), "city", "n") == Counter([(None, 2), ("B", 2), ("C", 1)])
    assert rows_of(DeltaTable(lake / "whole"), "n") == Counter([(9,)])


def test_small_files_are_compacted_and_unused_ones_deleted(pipeline: Runner, topics: Topics) -> None:
    topics.create("delta-small-in")
    maintenance = {"interval": "1ms", "retain": "1ms"}
    spec = {
        "sources": {"events": events("delta-small-in", maxOffsetsPerTrigger=1)},
        "sinks": [{"from": "events", "delta": {"path": "small", "maintenance": maintenance}}],
    }
    topics.write("delta-small-in", *({"id": number} for number in range(4)))
    pipeline(spec)
    table = DeltaTable(pipeline.folder / "small")
    assert rows_of(table, "id") == Counter((number,) for number in range(4))
    assert len(table.file_uris()) <= 2
    assert len(list((pipeline.folder / "small").glob("*.parquet"))) <= 4, (
        "each batch writes one file, and compaction writes another"
    )


def test_errors_name_the_table(pipeline: Runner, topics: Topics) -> None:
    topics.create("delta-wrong-in")
    topics.write("delta-wrong-in", {"id": 1, "city": "A"})
    spec = {
        "sources": {"events": events("delta-wrong-in")},
        "transforms": [{"name": "texts", "sql": "SELECT array(city) AS id FROM events"}],
    }
    pipeline({**spec, "sinks": [{"from": "events", "delta": {"path": "typed"}}]})
    with pytest.raises(PipelineError, match=r"sink texts: delta: typed: .*'id'"):
        pipeline({**spec, "sinks": [{"from": "texts", "delta": {"path": "typed"}}]})
