"""The Iceberg sink, read back by PyIceberg, DuckDB and Spark: catalogs, upserts, columns that are
added, and maintenance.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyspark.sql import SparkSession

from ottla_operator.plan.topic_lake import lake_pipeline
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.topic import Topic
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
    """Counts the rows, each as the values of `columns`: expressions that DuckDB computes from
    PyIceberg's scan.
    """
    found = table.scan().to_duckdb("rows").execute(f"SELECT {', '.join(columns)} FROM rows").fetchall()
    return Counter(found)


def test_rows_are_appended_by_day_and_columns_are_added(pipeline: Runner, topics: Topics) -> None:
    topics.create("lake-in", partitions=2)
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


def test_results_replace_earlier_ones_in_tables_of_a_jdbc_catalog(pipeline: Runner, topics: Topics) -> None:
    topics.create("merge-in", partitions=2)
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


def test_table_of_a_topic_is_compacted_and_every_reader_finds_its_rows(pipeline: Runner, topics: Topics) -> None:
    """The Pipeline of a Topic with a lake. Readers are PyIceberg, DuckDB and Spark."""
    topics.create("lake-topic", retention_ms="-1")
    batch_count, days = 7, ("1970-01-02", "1970-01-03")
    for number in range(len(days) * batch_count):
        at = datetime.fromisoformat(f"{days[number % 2]}T12:00:00+00:00") + timedelta(minutes=number)
        value = json.dumps({"id": number, "city": "AB"[number % 2]})
        topics.producer.produce("lake-topic", value, timestamp=int(at.timestamp() * 1000))
    topics.producer.flush()
    target = {"table": "lake.air.events", "catalog": SQLITE, "maintenance": {"interval": "1ms", "retain": "1ms"}}
    lake = {"iceberg": target, "format": {"type": "json", "schema": "id INT NOT NULL, city STRING"}}
    resource = {"apiVersion": API_VERSION, "kind": "Topic", "metadata": {"name": "lake-topic", "namespace": "n"}}
    resource["spec"] = {"clusterRef": {"name": "c"}, "lake": lake}
    spec = (lake_pipeline(Topic.parse(resource)) or {})["spec"]
    spec["sources"]["records"]["maxOffsetsPerTrigger"] = len(days)
    pipeline({**spec, "trigger": {"availableNow": True}})

    folder = pipeline.folder
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake.db", warehouse=str(folder / "lake"))
    table = catalog.load_table("air.events")
    files = [it.file for it in table.scan().plan_files()]
    assert {it.partition[0] for it in files} == {1, 2}, "days since 1970"
    assert len(files) <= 3 * len(days), "the files of five batches are compacted to one"
    assert len(table.snapshots()) <= 3
    assert len(list((folder / "lake" / "air" / "events" / "data").rglob("*.parquet"))) <= 2 * len(files)
    assert table.properties["write.metadata.delete-after-commit.enabled"] == "true"

    columns = ("day(record_timestamp)", "record_partition", "record_offset", "id", "city")
    expected = Counter(
        (2 + number % 2, 0, number, number, "AB"[number % 2]) for number in range(len(days) * batch_count)
    )
    assert rows_of(table, *columns) == expected
    spark = SparkSession.builder.getOrCreate().newSession()
    properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/lake.db", "warehouse": f"{folder}/lake"}
    spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.lake.{name}", value)
    rows = spark.table("lake.air.events")
    assert Counter(map(tuple, rows.selectExpr(*columns).collect())) == expected
    assert rows.where("record_timestamp >= timestamp'1970-01-03 00:00:00Z'").count() == batch_count


def test_errors_name_the_sink_and_its_table_or_catalog(pipeline: Runner, topics: Topics) -> None:
    topics.create("lake-wrong-in")
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
