"""Compares the rows of sinks with those of another version of the pipeline (`compareWith`).

Both targets are read as a whole. Rows are counted by their key where the sink replaces rows by key
(`update`), otherwise by all of their columns. Only columns that both have are compared. The two
versions go on writing: rows that arrive during the comparison, or that only one of the versions has
processed, are differences.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import structs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_operator.resources.replacement import Comparison
from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError, describe_error
from ottla_spark.lake_sql import quote, quote_table
from ottla_spark.streaming import source
from ottla_spark.streaming.encode import output_columns

_MIN_PAUSE_S: Final = 60.0
_PAUSE_FACTOR: Final = 10
"""The pause until the next comparison is at least this many times the duration of the last one."""
_BATCH_FOLDER: Final = "batch"
_TEXT_MAP: Final = "map<string,string>"

ClientProperties = Mapping[str, str]


class SinkComparer:
    """Compares the sinks of a pipeline in a thread of its own, again and again until they are
    equal.

    report: called with each result. folder: base of relative paths. kafka: client properties.
    """

    def __init__(
        self,
        spark: SparkSession,
        sinks: Sequence[Sink],
        folder: Path,
        kafka: ClientProperties,
        report: Callable[[Sequence[Comparison]], None],
    ) -> None:
        self._spark = spark
        self._sinks = [it for it in sinks if it.compare_with is not None]
        self._folder = folder
        self._kafka = kafka
        self._report = report
        self._thread: threading.Thread | None = None
        self._due_s = 0.0
        self._is_equal = False

    def run_if_due(self) -> None:
        """Starts a comparison unless one runs, the pause after the last one has not ended, or all
        sinks were equal.
        """
        is_running = self._thread is not None and self._thread.is_alive()
        if not self._sinks or self._is_equal or is_running or time.monotonic() < self._due_s:
            return
        self._thread = threading.Thread(target=self._run, name="comparison", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Compares the result of a pipeline that has read everything, unless all sinks were equal
        before. Returns when that is done.
        """
        self._wait()  # a comparison in progress may have begun before the last batch
        self._due_s = 0.0
        self.run_if_due()
        self._wait()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began_s = time.monotonic()
        comparisons = [compare_sink(self._spark, it, self._folder, self._kafka) for it in self._sinks]
        took_s = time.monotonic() - began_s
        self._due_s = time.monotonic() + max(_MIN_PAUSE_S, _PAUSE_FACTOR * took_s)
        self._is_equal = all(it.is_equal for it in comparisons)
        self._report(comparisons)


def compare_sink(spark: SparkSession, sink: Sink, folder: Path, kafka: ClientProperties) -> Comparison:
    """Compares a sink that has compareWith. An error is part of the result: files of a batch that
    is being replaced cannot be read, for example.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        read = _read_records if sink.topic is not None else _read_rows
        old, new = (read(spark, sink, name, folder, kafka) for name in (sink.compare_with or "", sink.target[1]))
        counts = _count(*_comparable(sink, old, new), keyed=sink.output_mode == "update")
    except (Py4JError, PySparkException, PipelineError) as error:
        return Comparison(sink=sink.query_name, at=at, error=describe_error(error))
    return structs.replace(Comparison(sink=sink.query_name, at=at), **counts)


def _read_records(spark: SparkSession, sink: Sink, topic: str, folder: Path, kafka: ClientProperties) -> DataFrame:
    """Key and value of the committed records of a topic: of each key the latest, with `update`."""
    raw = source.read_topic(spark, topic, kafka)
    return source.table_rows(raw) if sink.output_mode == "update" else raw


def _read_rows(spark: SparkSession, sink: Sink, name: str, folder: Path, kafka: ClientProperties) -> DataFrame:
    if sink.iceberg is not None:
        table = quote_table(name)
        spark.sql(f"REFRESH TABLE {table}")
        return spark.table(table)
    path = name if "://" in name else str(folder / name)
    if sink.delta is not None:
        return spark.read.format("delta").load(path)
    rows = spark.read.parquet(path)
    return rows.drop(_BATCH_FOLDER) if sink.output_mode != "complete" else rows


def _comparable(sink: Sink, old: DataFrame, new: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both sides as rows of `key` and `value`, made of the columns or fields that both sides have.
    Raises PipelineError if the other version lacks a column of the key.
    """
    if sink.topic is not None:
        fields = F.from_json(F.col("_value").cast("string"), _TEXT_MAP)
        shared = sorted(_field_names(old, fields) & _field_names(new, fields))
        chosen = F.to_json(F.struct(*[fields[name].alias(name) for name in shared])) if shared else F.lit("")
        # Records that are no JSON object are compared as they are.
        value = F.when(fields.isNotNull(), chosen).otherwise(F.base64("_value"))
        key = F.coalesce(F.base64("_key"), F.lit(""))
        return _as_pairs(sink, old, key, value), _as_pairs(sink, new, key, value)
    shared = [name for name in output_columns(new) if name in output_columns(old)]
    if missing := [name for name in sink.key if name not in shared]:
        raise PipelineError(f"{sink.compare_with} has no column {', '.join(missing)}, which is in the key")
    key = _json(sink.key) if sink.key else F.lit("")
    value = _json([name for name in shared if name not in sink.key])
    return _as_pairs(sink, old, key, value), _as_pairs(sink, new, key, value)


def _as_pairs(sink: Sink, rows: DataFrame, key: Column, value: Column) -> DataFrame:
    """Rows that are not replaced by key are identified by all that they have."""
    identity = key if sink.output_mode == "update" else F.concat_ws(" ", key, value)
    return rows.select(identity.alias("key"), value.alias("value"))


def _json(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*[F.col(quote(name)) for name in names])) if names else F.lit("")


def _field_names(records: DataFrame, fields: Column) -> set[str]:
    """Names of the fields that any of the records has."""
    found = records.select(F.explode(F.map_keys(fields)).alias("name")).distinct().collect()
    return {row["name"] for row in found}


def _count(old: DataFrame, new: DataFrame, *, keyed: bool) -> dict[str, int]:
    """The counts of a Comparison, by the names of its fields. `keyed`: rows of a key are equal if
    their values are; otherwise the key is the whole row.
    """
    sides = [
        rows.select("key", *[F.lit(int(it == name)).alias(it) for it in ("old", "new")], F.col("value").alias("v"))
        for name, rows in (("old", old), ("new", new))
    ]
    by_key = (
        sides[0]
        .unionByName(sides[1])
        .groupBy("key")
        .agg(
            F.sum("old").alias("old"),
            F.sum("new").alias("new"),
            (
                F.max(F.when(F.col("old") == 1, F.col("v"))).eqNullSafe(F.max(F.when(F.col("new") == 1, F.col("v"))))
            ).alias("same"),
        )
    )
    both = F.least("old", "new")
    is_equal = F.col("same") if keyed else F.lit(True)
    counts = by_key.agg(
        F.sum("old").alias("old_rows"),
        F.sum("new").alias("new_rows"),
        F.sum(F.when(is_equal, both).otherwise(0)).alias("equal"),
        F.sum(F.when(is_equal, 0).otherwise(both)).alias("different"),
        F.sum(F.col("old") - both).alias("only_old"),
        F.sum(F.col("new") - both).alias("only_new"),
    ).first()
    return {name: int(count or 0) for name, count in counts.asDict().items()} if counts is not None else {}
