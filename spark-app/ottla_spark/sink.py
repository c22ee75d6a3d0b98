"""Where rows go, one batch at a time.

A batch that failed, or whose process was killed, runs again with the same number and the same records. What that means:

- topic: at least once. Every record says in headers `ottla.batch` and `ottla.sequence` (unique within the batch), so
  a reader can tell a repetition; keyed results in `update` mode need no telling: the newest record of a key is the
  result.
- parquet: exactly once, for every reader. Each batch has a folder of its own, `batch=<number>`, which is written anew
  as a whole; `complete` results have one folder only.
- console: at least once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla_spark.spec import Parquet, Sink
from ottla_spark.trouble import Trouble

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Writer = Callable[["DataFrame", int], None]
"""Writes the rows of the batch of this number."""

SEPARATOR: Final = "|"
"""Between the columns of a key."""


def writer(sink: Sink, kafka: Mapping[str, str], folder: Path) -> Writer:
    """The writer for a sink. `folder`: where relative paths begin."""
    if sink.topic is not None:
        return lambda rows, batch: write_records(keyed(rows, sink, batch), sink.topic or "", kafka)
    if sink.parquet is not None:
        return _parquet(sink.parquet, complete=sink.output_mode == "complete", folder=folder)
    shown = sink.console.rows if sink.console is not None else 0
    return lambda rows, batch: _console(sink.query, shown, rows, batch)


def check(sink: Sink, rows: DataFrame) -> None:
    """Trouble when the rows lack a column that the sink names."""
    wanted = (*sink.key, *(sink.parquet.partition_by if sink.parquet else ()))
    if missing := [name for name in wanted if name not in rows.columns]:
        raise Trouble(
            f"sink {sink.query}: {sink.source} has no column {', '.join(missing)}; "
            f"it has {', '.join(own_columns(rows))}"
        )


def check_place(sink: Sink, folder: Path) -> None:
    """Trouble when the sink is a folder of this machine that cannot be written to. `folder`: where relative paths begin."""
    if sink.parquet is None or "://" in sink.parquet.path:
        return
    place = folder / sink.parquet.path
    try:
        place.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(place, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise Trouble(f"sink {sink.query}: parquet.path: {place} cannot be written to: {why}")


def own_columns(rows: DataFrame) -> list[str]:
    """The columns that are written: those that do not begin with `_`."""
    return [name for name in rows.columns if not name.startswith("_")]


def keyed(rows: DataFrame, sink: Sink, batch: int) -> DataFrame:
    """Rows as records: the key as text, the value as JSON (or as it is, where the rows are just key and value as
    bytes), headers."""
    from pyspark.sql import functions as F

    key = F.concat_ws(SEPARATOR, *[_text(rows, name) for name in sink.key]).cast("binary") if sink.key else None
    if is_raw(rows):
        value = F.col("value")
        key = F.col("key") if key is None else key
    else:
        value = F.to_json(
            F.struct(*[F.col(f"`{name}`") for name in own_columns(rows)]), {"ignoreNullFields": "false"}
        ).cast("binary")
    records = rows.select((F.lit(None).cast("binary") if key is None else key).alias("key"), value.alias("value"))
    if "_offset" not in rows.columns:
        # Rows out of state come in any order; sorted, a batch that runs again gives each row the same sequence number.
        records = records.sortWithinPartitions("key", "value")
    sequence = F.monotonically_increasing_id().cast("string")
    headers = (("ottla.batch", F.lit(str(batch))), ("ottla.sequence", sequence))
    pairs = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in headers]
    return records.withColumn("headers", F.array(*pairs))


def is_raw(rows: DataFrame) -> bool:
    """Whether the rows are records already: `key` and `value` as bytes, and nothing else."""
    return {name: kind for name, kind in rows.dtypes if not name.startswith("_")} == {
        "key": "binary",
        "value": "binary",
    }


def _text(rows: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as F

    column = F.col(f"`{name}`")
    if dict(rows.dtypes)[name].startswith("timestamp"):
        return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ssXXX")
    return F.coalesce(column.cast("string"), F.lit(""))


def write_records(records: DataFrame, topic: str, kafka: Mapping[str, str]) -> None:
    """Records (key, value, headers) to a topic. `kafka`: the client's settings."""
    options = {f"kafka.{name}": value for name, value in kafka.items()}
    records.write.format("kafka").options(**options).option("topic", topic).option("includeHeaders", "true").save()


def _parquet(target: Parquet, *, complete: bool, folder: Path) -> Writer:
    path = target.path if "://" in target.path else str(folder / target.path)

    def write(rows: DataFrame, batch: int) -> None:
        files = rows.select(*[f"`{name}`" for name in own_columns(rows)]).write.mode("overwrite")
        if target.partition_by:
            files = files.partitionBy(*target.partition_by)
        files.parquet(path if complete else f"{path}/batch={batch}")

    return write


def _console(name: str, shown: int, rows: DataFrame, batch: int) -> None:
    text = rows.select(*[f"`{column}`" for column in own_columns(rows)])._jdf.showString(shown, 40, False)
    sys.stdout.write(f"{name}, batch {batch}\n{text}")
    sys.stdout.flush()
