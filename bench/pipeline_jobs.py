"""The jobs of `bench.pipelines` as Pipelines, and the constants that the same jobs in PySpark and
Kafka Streams share with them.
"""

from __future__ import annotations

from typing import Any, Final

EVENTS, COUNTS, COPIES = "bench-events", "bench-counts", "bench-copies"
SCHEMA: Final = "id BIGINT, item STRING, price DOUBLE, at TIMESTAMP, note STRING"
BATCH_ROWS: Final = 100_000
SHUFFLE_PARTITIONS: Final = "4"
WITHOUT_ARCHIVE: Final = {"spark.driver.extraJavaOptions": "-Xshare:auto"}
"""While the first run processes batches, a process writes an archive of Spark's classes
(`class_archive`), which would disturb the measurement. This option prevents it.
"""
ROWS_SQL: Final = "SELECT id, upper(item) AS item, price * 2 AS price, at FROM events WHERE price > 1"
KEYS_SQL: Final = "SELECT CAST(key AS STRING) AS item, count(*) AS events FROM events GROUP BY key"
COUNTS_SQL: Final = "SELECT item, count(*) AS events, round(sum(price), 2) AS revenue FROM events GROUP BY item"


def rows_job() -> dict[str, Any]:
    """Rows are filtered, changed and written to files."""
    return _job(ROWS_SQL, {"parquet": {"path": "out"}})


def counts_job(delivery: str = "atLeastOnce") -> dict[str, Any]:
    """Counts and sums by the column `item`, written to a topic."""
    sink = {"topic": COUNTS, "key": ["item"], "outputMode": "update", "delivery": delivery}
    return _job(COUNTS_SQL, sink)


def keys_job() -> dict[str, Any]:
    """Counts of records by record key, written to a topic. Values are not decoded."""
    sink = {"topic": COUNTS, "key": ["item"], "outputMode": "update", "delivery": "atLeastOnce"}
    job = _job(KEYS_SQL, sink)
    job["sources"]["events"] |= {"format": {"type": "raw"}}
    return job


def copies_job(delivery: str) -> dict[str, Any]:
    """Every row is written to another topic."""
    return _job("SELECT id, item, note FROM events", {"topic": COPIES, "delivery": delivery})


def live_copies_job(delivery: str, trigger: dict[str, Any]) -> dict[str, Any]:
    """Every row that is written while the job runs is written to another topic. `trigger`: empty
    for the default.
    """
    job = copies_job(delivery)
    job["sources"]["events"] |= {"startingOffsets": "latest"}
    del job["trigger"]
    return {**job, "trigger": trigger} if trigger else job


def _job(sql: str, sink: dict[str, Any]) -> dict[str, Any]:
    source = {"topic": EVENTS, "format": {"type": "json", "schema": SCHEMA}, "maxOffsetsPerTrigger": BATCH_ROWS}
    return {
        "clusterRef": {"name": "bench"},
        "sources": {"events": source},
        "transforms": [{"name": "result", "sql": sql}],
        "sinks": [{"from": "result", **sink}],
        "trigger": {"availableNow": True},
        "spark": {"conf": {"spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}},
    }
