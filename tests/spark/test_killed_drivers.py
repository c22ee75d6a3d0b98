"""Each row is in a table once, whatever step of a batch the driver is killed at: for all sinks that
are tables.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from deltalake import DeltaTable

from tests.postgresql import PostgreSQL
from tests.spark.conftest import Runner, Topics, jdbc
from tests.spark.dying_driver import Step
from tests.spark.killed_driver import run_and_kill, upserted
from tests.spark.test_iceberg import iceberg, read
from tests.spark.test_iceberg import rows_of as rows_of_iceberg

STREAMING: Final = "ottla_spark.streaming"
UPDATE: Final = {"outputMode": "update", "key": ["id"]}
COMMITS: Final = (
    f"{STREAMING}.delta_writer:commit_rows",
    f"{STREAMING}.iceberg_writer:commit_rows",
    f"{STREAMING}.sink:write_parquet",
)


def deaths(when: str) -> list[list[Step]]:
    """The steps before or after the commits of a batch. A batch of the JDBC sink has one step more
    than others.
    """
    of_others: list[Step] = [(it, when) for it in COMMITS]
    staged, commit = (f"{STREAMING}.jdbc_writer:{name}" for name in ("stage_rows", "commit"))
    of_jdbc = [(commit, "after")] if when == "after" else [(staged, "after"), (commit, "before")]
    return [[*of_others, step] for step in of_jdbc]


@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("login")
def test_each_row_is_there_once_whatever_step_the_driver_is_killed_at(
    pipeline: Runner, topics: Topics, database: PostgreSQL, when: str
) -> None:
    topic, schema = f"killed-{when}", f"killed_{when}"
    topics.make(topic, partitions=2)
    database.run(f"CREATE SCHEMA {schema}")
    folder = pipeline.folder

    def appended() -> dict[str, Counter[tuple[Any, ...]]]:
        """The rows of each table, by the sink's name."""
        files = f"SELECT id, city FROM read_parquet('{folder}/rows/**/*.parquet')"
        return {
            "parquet": Counter(duckdb.connect().execute(files).fetchall()),
            "delta": rows_of_delta(folder / "appended"),
            "iceberg": rows_of_iceberg(read(folder, "db", "appended"), "id", "city"),
            "jdbc": rows_of_database(database, f"{schema}.appended"),
        }

    def updated() -> dict[str, Counter[tuple[Any, ...]]]:
        return {
            "delta_update": rows_of_delta(folder / "updated"),
            "iceberg_update": rows_of_iceberg(read(folder, "db", "updated"), "id", "city"),
            "jdbc_update": rows_of_database(database, f"{schema}.updated"),
        }

    def check(records: int) -> None:
        rows = [(it["id"], it["city"]) for it in upserted(range(records))]
        for name, found in appended().items():
            assert found == Counter(rows), name
        for name, found in updated().items():
            assert found == Counter(dict(rows).items()), name

    sinks: dict[str, dict[str, Any]] = {
        "parquet": {"parquet": {"path": "rows"}},
        "delta": {"delta": {"path": "appended"}},
        "iceberg": iceberg("db.appended"),
        "jdbc": jdbc(database, f"{schema}.appended"),
        "delta_update": {**UPDATE, "delta": {"path": "updated"}},
        "iceberg_update": {**UPDATE, **iceberg("db.updated")},
        "jdbc_update": {**UPDATE, **jdbc(database, f"{schema}.updated")},
    }
    run_and_kill(pipeline, topic, sinks, deaths(when), check)


def rows_of_delta(folder: Path) -> Counter[tuple[Any, ...]]:
    return Counter((row["id"], row["city"]) for row in DeltaTable(folder).to_pyarrow_table().to_pylist())


def rows_of_database(database: PostgreSQL, table: str) -> Counter[tuple[Any, ...]]:
    return Counter((int(id_), city) for id_, city in database.run(f"SELECT id, city FROM {table}"))
