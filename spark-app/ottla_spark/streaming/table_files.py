"""The files of a reference table: rows of its topic, and the base and delta of a version.

    <checkpoint>/tables/<source>/<number>-base/   Parquet files
    <checkpoint>/tables/<source>/<number>-delta/
    <checkpoint>/tables/<source>/empty/           the delta of a version that has none

Besides the source's columns and the origin columns, rows have `_key`, the key in bytes, and
`_deleted`: the latest record of the key has no value, or does not decode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla_spark.definition import PipelineDefinition
from ottla_spark.streaming import decode, source
from ottla_spark.streaming.checkpoint import Checkpoint
from ottla_spark.streaming.table_version import TableVersion

KEY: Final = "_key"
DELETED: Final = "_deleted"
_EMPTY: Final = "empty"

ReadRange = Callable[[Mapping[int, int], Mapping[int, int]], DataFrame]
"""Raw rows of the topic between offsets of each partition, the end exclusive."""


class TableFiles:
    """Reads and writes the folders of a table. They are immutable once a version names them."""

    def __init__(
        self, spark: SparkSession, pipeline: PipelineDefinition, name: str, checkpoint: Checkpoint, read: ReadRange
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._name = name
        self._checkpoint = checkpoint
        self._read = read
        self._folder = f"tables/{name}"
        self.schema: StructType = self._decode(spark.createDataFrame([], source.RAW_SCHEMA)).schema
        checkpoint.make_folder(f"{self._folder}/{_EMPTY}")

    @property
    def definition_digest(self) -> str:
        """Digest of what the columns of a row depend on."""
        spec, name = self._pipeline.spec.sources[self._name], self._name
        readers = (self._pipeline.readers.get(name), self._pipeline.key_readers.get(name))
        parts = (spec.topic, spec.format, spec.key, spec.key_format, *readers, self.schema.json())
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def path(self, folder: str) -> str:
        """Path of a base or delta; an empty name is that of a delta without rows."""
        return f"{self._checkpoint.location}/{self._folder}/{folder or _EMPTY}"

    def write_base(self, number: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> tuple[str, int]:
        """Writes the latest row of each key that is not deleted. Returns, as `write_delta` and
        `write_merged_base` do, the folder's name and the number of rows.
        """
        return self._write(f"{number}-base", self._latest_rows(starts, ends).where(~F.col(DELETED)))

    def write_delta(
        self, number: int, version: TableVersion, since: Mapping[int, int], ends: Mapping[int, int]
    ) -> tuple[str, int]:
        """Writes the delta of a version, together with the changes from the offsets `since` on."""
        changes = self._latest_rows(since, ends)
        if version.delta:
            both = self._rows(version.delta).unionByName(changes)
            latest = both.groupBy(KEY).agg(F.max_by(F.struct(*both.columns), "_offset").alias("_last"))
            changes = latest.select("_last.*")
        return self._write(f"{number}-delta", changes.coalesce(1))

    def write_merged_base(
        self, number: int, version: TableVersion, delta: str, starts: Mapping[int, int]
    ) -> tuple[str, int]:
        """Writes a new base: the rows of a version's base and of a delta, without those that the
        topic's retention has deleted.
        """
        rows = merge_delta(self._rows(version.base), self._rows(delta))
        for partition, start in starts.items():
            rows = rows.where((F.col("_partition") != partition) | (F.col("_offset") >= start))
        return self._write(f"{number}-base", rows)

    def delete_all_but(self, folders: frozenset[str]) -> None:
        for folder in self._checkpoint.list_folder(self._folder) - folders - {_EMPTY}:
            self._checkpoint.delete_folder(f"{self._folder}/{folder}")

    def _rows(self, folder: str) -> DataFrame:
        return self._spark.read.schema(self.schema).parquet(self.path(folder))

    def _latest_rows(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> DataFrame:
        return self._decode(source.latest_record_by_key(self._read(starts, ends)))

    def _decode(self, records: DataFrame) -> DataFrame:
        """Decoded rows. Without dead letters, a record that does not decode is an error."""
        rows = decode.decode_rows(records, self._pipeline, self._name)
        has_value = F.col("_value").isNotNull()
        rows = rows.withColumn(decode.DECODE_ERROR, F.when(has_value, F.col(decode.DECODE_ERROR)))
        if self._pipeline.spec.dead_letter is None:
            rows = rows.where(decode.decoded_or_fail())
        deleted = ~has_value | F.col(decode.DECODE_ERROR).isNotNull()
        return rows.withColumn(DELETED, deleted).drop("_value", decode.DECODE_ERROR)

    def _write(self, folder: str, rows: DataFrame) -> tuple[str, int]:
        count = Observation()
        counted = rows.observe(count, F.count(F.lit(1)).alias("rows"))
        counted.write.mode("overwrite").parquet(self.path(folder))
        return folder, int(count.get["rows"])


def merge_delta(base: DataFrame, delta: DataFrame) -> DataFrame:
    """Rows of the base whose key is not in the delta, and rows of the delta, without deleted
    ones.
    """
    unchanged = base.join(F.broadcast(delta.select(KEY)), KEY, "left_anti")
    return unchanged.unionByName(delta).where(~F.col(DELETED))
