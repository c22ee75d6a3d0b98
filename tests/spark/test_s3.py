"""Sinks and checkpoints on an S3-compatible store, read back by PyArrow, PyIceberg, DuckDB and
delta-rs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from ottla_operator.resources.object_store import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from tests.iceberg_catalog import run_iceberg_catalog
from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, run_s3_server
from tests.spark.conftest import Runner, Topics, events, pipeline_document
from tests.spark.death import Step
from tests.spark.dying_driver import run_driver
from tests.spark.killed_driver import AMID_ROWS, ROWS, run_and_kill, upserted

SECRET = "store"
PARQUET = "ottla_spark.streaming.sink:write_parquet"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def catalog(store: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server of Iceberg's REST API."""
    with run_iceberg_catalog(tmp_path_factory.mktemp("catalog"), store) as url:
        yield url


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with the Secret of the store's credentials."""
    folder = tmp_path / "secrets"
    (folder / SECRET).mkdir(parents=True)
    (folder / SECRET / ACCESS_KEY_ID).write_text(ACCESS_KEY)
    (folder / SECRET / SECRET_ACCESS_KEY).write_text(SECRET_KEY)
    return folder


def read_parquet(store: S3Server, prefix: str, *columns: str) -> Counter[tuple[Any, ...]]:
    table = pyarrow.parquet.read_table(f"{BUCKET}/{prefix}", filesystem=store.file_system(), columns=list(columns))
    return Counter(tuple(row[name] for name in columns) for row in table.to_pylist())


@pytest.mark.slow
def test_parquet_on_s3_has_each_row_once_when_drivers_die(
    pipeline: Runner, topics: Topics, store: S3Server, secrets: Path
) -> None:
    """Files and checkpoint are in the store; at the end no file of an interrupted batch is left."""
    topics.create("s3-killed-in", partitions=2)

    def check(record_count: int) -> None:
        expected = Counter((row["id"], row["city"]) for row in upserted(range(record_count)))
        assert read_parquet(store, "killed/rows", "id", "city") == expected
        names = [Path(it).name for it in store.files("killed/rows")]
        assert all(it == "_SUCCESS" or (it.startswith("part-") and it.endswith(".parquet")) for it in names), names

    pipeline.secrets, pipeline.checkpoint_on_s3 = secrets, f"s3a://{BUCKET}/killed/checkpoint"
    sinks = {"rows": {"parquet": {"path": f"s3a://{BUCKET}/killed/rows"}}}
    store_fields = {"s3": {"endpoint": store.endpoint, "secretRef": {"name": SECRET}}}
    deaths: list[list[Step]] = [[(PARQUET, "before")], AMID_ROWS, [(PARQUET, "after")]]
    run_and_kill(pipeline, "s3-killed-in", sinks, deaths, check, store_fields)
    assert any(it.endswith("/commits/1") for it in store.files("killed/checkpoint"))
    assert not (pipeline.folder / "checkpoint").exists()


@pytest.mark.slow
def test_state_and_tables_resume_from_a_checkpoint_on_s3(
    pipeline: Runner, topics: Topics, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has the store's credentials in its environment."""
    monkeypatch.setenv(ACCESS_KEY_ID, ACCESS_KEY)
    monkeypatch.setenv(SECRET_ACCESS_KEY, SECRET_KEY)
    topics.create("s3-state-in", "s3-state-table")
    topics.write("s3-state-table", {"id": 1, "city": "A"}, key="1")
    sql = "SELECT cities.city, count(*) AS n FROM events JOIN cities ON events.city = cities.city GROUP BY cities.city"
    bucket = {"bucket": BUCKET, "prefix": "/state/checkpoint/", "endpoint": store.endpoint}
    spec = {
        "sources": {
            "events": events("s3-state-in"),
            "cities": events("s3-state-table", mode="table", key="k"),
        },
        "transforms": [{"name": "sums", "sql": sql}],
        "sinks": [{"from": "sums", "parquet": {"path": f"s3a://{BUCKET}/state/sums"}, "outputMode": "complete"}],
        "checkpoint": {"s3": bucket},
        "spark": {"conf": {"spark.sql.shuffle.partitions": "1"}},
    }
    file, progress = pipeline.folder / "p.yaml", pipeline.folder / "p.jsonl"
    file.write_text(json.dumps(pipeline_document(spec)))
    for n in (1, 2):
        topics.write("s3-state-in", {"id": n, "city": "A"})
        code = run_driver(
            [],
            *("run", "--pipeline", str(file), "--bootstrap", topics.address, "--master", "local[2,2]"),
            *("--checkpoint", f"s3a://{BUCKET}/state/checkpoint", "--progress", str(progress)),
        )
        assert code == os.EX_OK, progress.read_text()[-800:]
        assert read_parquet(store, "state/sums", "city", "n") == Counter([("A", n)])
    assert {it.split("/")[2] for it in store.files("state/checkpoint")} >= {"ottla.json", "queries", "tables"}


def test_iceberg_and_delta_tables_are_on_s3(pipeline: Runner, topics: Topics, store: S3Server, secrets: Path) -> None:
    topics.create("s3-lake-in", partitions=2)
    topics.write("s3-lake-in", *upserted(range(ROWS)))
    database = pipeline.folder / "catalog.db"
    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{database}", "warehouse": f"s3a://{BUCKET}/iceberg"}
    pipeline.secrets = secrets
    pipeline(
        {
            "sources": {"events": events("s3-lake-in")},
            "transforms": [{"name": "rows", "sql": "SELECT id, city FROM events"}],
            "sinks": [
                {"from": "rows", "name": "ice", "iceberg": {"table": "s3lake.db.rows", "catalog": catalog}},
                {"from": "rows", "name": "delta", "delta": {"path": f"s3a://{BUCKET}/delta/rows"}},
            ],
            "s3": {"endpoint": store.endpoint, "secretRef": {"name": SECRET}},
        }
    )
    expected = Counter((row["id"], row["city"]) for row in upserted(range(ROWS)))
    properties = {"warehouse": catalog["warehouse"], **store.iceberg_properties()}
    lake = SqlCatalog("s3lake", uri=f"sqlite:///{database}", **properties)
    rows = lake.load_table("db.rows").scan().to_arrow().to_pylist()
    assert Counter((row["id"], row["city"]) for row in rows) == expected
    options = {
        "AWS_ENDPOINT_URL": store.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        ACCESS_KEY_ID: ACCESS_KEY,
        SECRET_ACCESS_KEY: SECRET_KEY,
    }
    delta = DeltaTable(f"s3a://{BUCKET}/delta/rows", storage_options=options).to_pyarrow_table().to_pylist()
    assert Counter((row["id"], row["city"]) for row in delta) == expected


def test_iceberg_tables_of_a_rest_catalog_are_on_s3(
    pipeline: Runner, topics: Topics, store: S3Server, catalog: str, secrets: Path
) -> None:
    """Read back by PyIceberg, and by DuckDB from PyIceberg's scan."""
    (secrets / "catalog").mkdir()
    (secrets / "catalog" / "credential").write_text("tester:secret")
    topics.create("s3-rest-in", partitions=2)
    pipeline.secrets = secrets
    target = {"type": "rest", "uri": catalog, "secretRef": {"name": "catalog"}}
    spec = {
        "sources": {"events": events("s3-rest-in")},
        "transforms": [
            {"name": "rows", "sql": "SELECT id, city FROM events"},
            {"name": "sums", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"},
        ],
        "sinks": [
            {"from": "rows", "iceberg": {"table": "rest.db.rows", "catalog": target, "partitionBy": ["city"]}},
            {
                "from": "sums",
                "key": ["city"],
                "outputMode": "update",
                "iceberg": {"table": "rest.db.sums", "catalog": target},
            },
        ],
        "s3": {"endpoint": store.endpoint, "secretRef": {"name": SECRET}},
    }
    topics.write("s3-rest-in", *({"id": number, "city": "AB"[number % 2]} for number in range(10)))
    pipeline(spec)
    topics.write("s3-rest-in", {"id": 10, "city": "A"})
    pipeline(spec)
    lake = RestCatalog("rest", uri=catalog, credential="tester:secret", **store.iceberg_properties())
    rows = lake.load_table("db.rows")
    assert [snapshot.summary["ottla.batch"] for snapshot in rows.snapshots()] == ["0", "1"]
    found = (
        rows.scan().to_duckdb("rows").execute("SELECT city, list(id ORDER BY id) FROM rows GROUP BY city ORDER BY 1")
    )
    assert found.fetchall() == [("A", [0, 2, 4, 6, 8, 10]), ("B", [1, 3, 5, 7, 9])]
    sums = lake.load_table("db.sums").scan().to_arrow().to_pylist()
    assert {row["city"]: row["n"] for row in sums} == {"A": 6, "B": 5}
    assert any(name.startswith("rest/db/rows/data/") for name in store.files("rest"))
