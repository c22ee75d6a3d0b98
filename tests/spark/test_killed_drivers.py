"""Each row is in a table once although the driver is killed at any step of a batch or of its
maintenance, for all sinks that are tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.iceberg_catalog import run_iceberg_catalog
from tests.postgresql import PostgreSQL
from tests.spark.conftest import Runner, Topics, jdbc
from tests.spark.death import Step
from tests.spark.killed_driver import AMID_ROWS, ROWS, run_and_kill, upserted
from tests.spark.test_iceberg import iceberg, read
from tests.spark.test_iceberg import rows_of as rows_of_iceberg
from tests.waiting import eventually

Rows = Counter[tuple[Any, ...]]
STREAMING: Final = "ottla_spark.streaming"
UPDATE: Final = {"outputMode": "update", "key": ["id"]}
MAINTENANCE: Final = {"interval": "1ms", "retain": "1ms"}
SQLITE: Final = {"type": "jdbc", "uri": "jdbc:sqlite:sqlite.db?busy_timeout=60000", "warehouse": "sqlite"}
PARTITIONS: Final = 5  # each has records, and Iceberg compacts that many files
COMMITS: Final = (
    f"{STREAMING}.delta_writer:commit_rows",
    f"{STREAMING}.iceberg_writer:commit_rows",
    f"{STREAMING}.sink:write_parquet",
)
DELTA, ICEBERG, JDBC = (f"{STREAMING}.{name}_writer" for name in ("delta", "iceberg", "jdbc"))


def deaths(when: str) -> list[list[Step]]:
    """The steps before or after the commits of a batch; those before them include the steps of
    maintenance. Iceberg's compaction is killed amid its commit to a catalog in SQLite. The server
    of the REST API has its catalog in SQLite too, and completes the commit after the driver's
    death.
    """
    others: list[Step] = [(it, when) for it in COMMITS]
    staged, commit = (f"{JDBC}:{name}" for name in ("stage_rows", "commit"))
    if when == "after":
        return [AMID_ROWS, [*others, (commit, "after")]]
    compact, expire = f"{ICEBERG}:compact_files", f"{ICEBERG}:expire_snapshots"
    compact_delta, delete_unused = f"{DELTA}:compact_files", f"{DELTA}:delete_unused_files"
    return [
        [*others, (staged, "after"), (compact, "committing"), (compact_delta, "after")],
        [*others, (commit, "before"), (expire, "committed"), (delete_unused, "committed")],
        AMID_ROWS,
    ]


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[str]:
    """URL of a server whose tables are in the pipeline's folder."""
    with run_iceberg_catalog(tmp_path) as url:
        yield url


@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("login")
def test_each_row_is_in_its_table_once_although_the_driver_is_killed_at_any_step(
    pipeline: Runner, topics: Topics, database: PostgreSQL, rest_catalog: str, when: str
) -> None:
    topic, schema = f"killed-{when}", f"killed_{when}"
    topics.create(topic, partitions=PARTITIONS)
    database.run(f"CREATE SCHEMA {schema}")
    folder = pipeline.folder

    def tables() -> dict[str, Table]:
        """Iceberg's tables, by their catalogs."""
        sqlite = SqlCatalog("sqlite", uri=f"sqlite:///{folder}/sqlite.db", warehouse=str(folder / "sqlite"))
        rest = RestCatalog("rest", uri=rest_catalog)
        found = {it.name: it.load_table("db.appended") for it in (sqlite, rest)}
        return {**found, "hadoop": read(folder, "db", "updated")}

    def is_rest_catalog_done() -> bool:
        """True if the catalog has completed the commit of the driver that was killed."""
        current = Path(tables()["rest"].metadata_location.removeprefix("file:"))
        return current == max(current.parent.glob("*.metadata.json"))

    def lake_rows() -> tuple[dict[str, Rows], dict[str, Rows]]:
        """The rows of the lakes' tables to which rows are appended, and of those with updates."""
        iceberg = tables()
        assert not {it: missing for it, table in iceberg.items() if (missing := missing_files(table))}
        rows = {it: rows_of_iceberg(table, "id", "city") for it, table in iceberg.items()}
        updated = {"delta": rows_of_delta(folder / "updated"), "hadoop": rows.pop("hadoop")}
        return {"delta": rows_of_delta(folder / "appended"), **rows}, updated

    def check(record_count: int) -> None:
        appended, updated = expected_rows(record_count)
        files = f"SELECT id, city FROM read_parquet('{folder}/rows/**/*.parquet')"
        assert Counter(duckdb.connect().execute(files).fetchall()) == appended
        assert rows_of_database(database, f"{schema}.appended") == appended
        assert rows_of_database(database, f"{schema}.updated") == updated
        found = lake_rows()
        assert found[0] == dict.fromkeys(("delta", "sqlite", "rest"), appended)
        assert found[1] == dict.fromkeys(("delta", "hadoop"), updated)
        batches = [it.summary["ottla.batch"] for it in tables()["hadoop"].snapshots() if it.summary]
        assert batches == [str(it) for it in range(record_count // ROWS)], "each is written once"

    def check_unfinished() -> None:
        """A batch is in a table as a whole or not at all."""
        eventually(is_rest_catalog_done)
        for found, *rows in zip(lake_rows(), *map(expected_rows, (ROWS, 2 * ROWS)), strict=True):
            assert not {it: wrong for it, wrong in found.items() if wrong not in rows}

    rest = {"type": "rest", "uri": rest_catalog}
    sinks: dict[str, dict[str, Any]] = {
        "parquet": {"parquet": {"path": "rows"}},
        "jdbc": jdbc(database, f"{schema}.appended"),
        "jdbc_update": {**UPDATE, **jdbc(database, f"{schema}.updated")},
        "delta": {"delta": {"path": "appended", "maintenance": MAINTENANCE}},
        "delta_update": {**UPDATE, "delta": {"path": "updated"}},
        "hadoop_update": {**UPDATE, **iceberg("db.updated")},
        "sqlite": {"iceberg": {"table": "sqlite.db.appended", "catalog": SQLITE, "maintenance": MAINTENANCE}},
        "rest": {"iceberg": {"table": "rest.db.appended", "catalog": rest, "maintenance": MAINTENANCE}},
    }
    run_and_kill(pipeline, topic, sinks, deaths(when), check, check_unfinished=check_unfinished)
    for name in ("sqlite", "rest"):
        table = tables()[name]
        files, snapshots = len(list(table.scan().plan_files())), len(table.snapshots())
        assert (files, snapshots) == (1 + PARTITIONS, 2), "maintenance goes on"


def expected_rows(record_count: int) -> tuple[Rows, Rows]:
    """The rows of tables with all rows, and of tables with the last row of each id."""
    rows = [(it["id"], it["city"]) for it in upserted(range(record_count))]
    return Counter(rows), Counter(dict(rows).items())


def missing_files(table: Table) -> list[str]:
    """Files that a snapshot of the table needs, and that are not there."""
    manifests = {it.manifest_path: it for snapshot in table.snapshots() for it in snapshot.manifests(table.io)}
    files = {entry.data_file.file_path for it in manifests.values() for entry in it.fetch_manifest_entry(table.io)}
    return [it for it in files if not table.io.new_input(it).exists()]


def rows_of_delta(folder: Path) -> Rows:
    return Counter((row["id"], row["city"]) for row in DeltaTable(folder).to_pyarrow_table().to_pylist())


def rows_of_database(database: PostgreSQL, table: str) -> Rows:
    return Counter((int(id_), city) for id_, city in database.run(f"SELECT id, city FROM {table}"))
