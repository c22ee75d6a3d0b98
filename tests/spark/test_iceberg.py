"""The Iceberg sink, read back by PyIceberg and DuckDB: catalogs, upserts, columns that are added,
and maintenance.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

from ottla_spark.errors import PipelineError
from tests.spark.conftest import Runner, Topics, events

UPDATE = {"key": ["city"], "outputMode": "update", "deleteWhen": "city = 'A' AND n > 2 OR city = 'D'"}
HADOOP = {"type": "hadoop", "warehouse": "lake"}
SQLITE = {"type": "jdbc", "uri": "jdbc:sqlite:lake.db", "warehouse": "lake"}


def iceberg(table: str, catalog: dict[str, Any] = HADOOP, **more: Any) -> dict[str, Any]:
    return {"iceberg": {"table": f"lake.{table}", "catalog": catalog, **more}}


def read(folder: Path, database: str, table: str) -> Table:
    """A table of the Hadoop catalog, as of its last version."""
    metadata = folder / "lake" / database / table / "metadata"
    version = int((metadata / "version-hint.text").read_text())
    return StaticTable.from_metadata(str(metadata / f"v{version}.metadata.json"))


def rows_of(table: Table, *columns: str) -> Counter[tuple[Any, ...]]:
    """PyIceberg's rows, which DuckDB computes on."""
    found = table.scan().to_duckdb("rows").execute(f"SELECT {', '.join(columns)} FROM rows").fetchall()
    return Counter(found)


def test_rows_are_appended_by_day_and_columns_are_added(pipeline: Runner, topics: Topics) -> None:
    topics.make("lake-in", partitions=2)
    sink = {"from": "rows", **iceberg("db.rows", partitionBy=["days(at)", "city"])}
    spec = {
        "sources": {"events": events("lake-in")},
        "transforms": [{"name": "rows", "sql": "SELECT id, at, city, _offset FROM events"}],
        "sinks": [sink],
    }
    topics.write("lake-in", *({"id": n, "at": f"2013-01-0{n}T10:00:00Z", "city": "AB"[n % 2]} for n in (1, 2, 3)))
    pipeline(spec)
    more = {"name": "rows", "sql": "SELECT id, city, named_struct('n', id) AS nested, array(id) AS list FROM events"}
    topics.write("lake-in", {"id": 4, "city": "C"})
    pipeline({**spec, "transforms": [more]})
    table = read(pipeline.folder, "db", "rows")
    found = table.scan().to_duckdb("rows").execute('SELECT id, day("at"), city, nested.n, "list" FROM rows ORDER BY id')
    assert found.fetchall() == [
        (1, 1, "B", None, None), (2, 2, "A", None, None), (3, 3, "B", None, None), (4, None, "C", 4, [4]),
    ]  # fmt: skip
    assert [str(it.transform) for it in table.spec().fields] == ["day", "identity"]
    assert len({file.file.partition for file in table.scan().plan_files()}) == 4


def test_results_replace_earlier_ones_in_a_catalog_of_a_database(pipeline: Runner, topics: Topics) -> None:
    topics.make("merge-in", partitions=2)
    spec = {
        "sources": {"events": events("merge-in")},
        "transforms": [
            {"name": "sums", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"},
            {"name": "all", "sql": "SELECT count(*) AS n FROM events"},
        ],
        "sinks": [
            {"from": "sums", **UPDATE, **iceberg("db.sums", SQLITE)},
            {"from": "all", "outputMode": "complete", **iceberg("db.whole", SQLITE)},
        ],
    }
    topics.write("merge-in", {"id": 0}, *({"id": number, "city": "AB"[number % 2]} for number in range(4)))
    pipeline(spec)
    topics.write("merge-in", {"id": 9}, *({"id": 9, "city": city} for city in "AACD"))
    pipeline(spec)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{pipeline.folder}/lake.db", warehouse=str(pipeline.folder / "lake"))
    sums = catalog.load_table("db.sums")
    assert rows_of(sums, "city", "n") == Counter([(None, 2), ("B", 2), ("C", 1)])
    assert rows_of(catalog.load_table("db.whole"), "n") == Counter([(10,)])
    batches = [it.summary.additional_properties.get("ottla.batch") for it in sums.snapshots() if it.summary]
    assert batches == ["0", "1"]


def test_small_files_are_joined_and_old_snapshots_expire(pipeline: Runner, topics: Topics) -> None:
    topics.make("small-in")
    maintenance = {"interval": "1ms", "retain": "1ms"}
    spec = {
        "sources": {"events": events("small-in", maxOffsetsPerTrigger=1)},
        "sinks": [{"from": "events", **iceberg("db.small", maintenance=maintenance)}],
    }
    topics.write("small-in", *({"id": number} for number in range(8)))
    pipeline(spec)
    table = read(pipeline.folder, "db", "small")
    assert rows_of(table, "id") == Counter((number,) for number in range(8))
    assert len(list(table.scan().plan_files())) < 8
    assert len(table.snapshots()) <= 3
    assert len(list((pipeline.folder / "lake" / "db" / "small" / "data").glob("*.parquet"))) < 12


def test_errors_name_the_table(pipeline: Runner, topics: Topics) -> None:
    topics.make("lake-wrong-in")
    topics.write("lake-wrong-in", {"id": 1, "city": "A"})
    spec = {
        "sources": {"events": events("lake-wrong-in")},
        "transforms": [{"name": "texts", "sql": "SELECT city AS id FROM events"}],
    }
    pipeline({**spec, "sinks": [{"from": "events", **iceberg("db.typed")}]})
    with pytest.raises(PipelineError, match=r"sink texts: iceberg: lake.db.typed: .*`id`.*\"STRING\" to \"INT\""):
        pipeline({**spec, "sinks": [{"from": "texts", **iceberg("db.typed")}]})
    with pytest.raises(PipelineError, match=r"sink q: another sink declares the catalog lake with other properties"):
        other = {"from": "events", "name": "q", **iceberg("db.t", SQLITE)}
        pipeline({**spec, "sinks": [{"from": "events", **iceberg("db.typed")}, other]})
