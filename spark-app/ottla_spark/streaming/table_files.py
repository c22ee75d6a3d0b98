"""The files of a reference table: rows of its topic, and the base and delta of a version.

    <checkpoint>/tables/<source>/<number>-base/          Parquet files of a base that is not divided
    <checkpoint>/tables/<source>/<number>-base/_part=3/  part 3 of a base, written in this version
    <checkpoint>/tables/<source>/<number>-fewer/         base that was written again in fewer parts
    <checkpoint>/tables/<source>/<number>-delta/         delta
    <checkpoint>/tables/<source>/<number>-rest/          rest of a delta after a merge of parts
    <checkpoint>/tables/<source>/empty/                  a part or delta that has no rows

Besides the source's columns and the origin columns, rows have `_key`, the key in bytes, and
`_deleted`, true if the latest record of the key has no value or does not decode. `_key_hash` is a
hash of the key's column. A large base is sorted by it, in pages of few rows, so that a scan can
skip the rows of other keys: see `key_lookups`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla_spark.definition import PipelineDefinition
from ottla_spark.streaming import decode, source
from ottla_spark.streaming.checkpoint import Checkpoint
from ottla_spark.streaming.key_lookups import key_hash, table_key
from ottla_spark.streaming.table_relation import KEY_HASH
from ottla_spark.streaming.table_version import TableVersion, count_parts

KEY: Final = "_key"
DELETED: Final = "_deleted"
_EMPTY: Final = "empty"
_PART: Final = "_part"
_PAGES: Final = {"parquet.page.row.count.limit": "1000", f"parquet.enable.dictionary#{KEY_HASH}": "false"}
"""Pages are small, because a scan reads all rows of a page that may have one of its hashes. Hashes
do not repeat, so they get no dictionary."""

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
        self.alias = f"ottla_table_{name}"
        self.key = table_key(self.alias, pipeline.spec.sources[name], self.schema)
        checkpoint.make_folder(f"{self._folder}/{_EMPTY}")

    @property
    def definition_digest(self) -> str:
        """Digest of what the columns of a row depend on."""
        spec, name = self._pipeline.spec.sources[self._name], self._name
        readers = (self._pipeline.readers.get(name), self._pipeline.key_readers.get(name))
        parts = (spec.topic, spec.format, spec.key, spec.key_format, *readers, self.schema.json())
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def path(self, folder: str) -> str:
        """Path of a part or delta; an empty name is that of one without rows."""
        return f"{self._checkpoint.location}/{self._folder}/{folder or _EMPTY}"

    def paths(self, folders: Iterable[str]) -> list[str]:
        """Each path once, though several parts may have no rows."""
        return sorted({self.path(it) for it in folders})

    def write_base(self, number: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> tuple[Sequence[str], int]:
        """Writes the latest row of each key, unless it is deleted. Returns, as `merge_parts` does,
        the names of the parts' folders, and the number of rows.
        """
        rows = self._latest_rows(starts, ends).where(~F.col(DELETED))
        record_count = sum(end - starts.get(partition, 0) for partition, end in ends.items())
        folders, row_count = self._write_parts(f"{number}-base", rows, record_count)
        if count_parts(row_count) == len(folders):
            return folders, row_count
        # The topic has many records of each key.
        return self._write_parts(f"{number}-fewer", self._rows(*folders), row_count)

    def write_delta(
        self, number: int, version: TableVersion, since: Mapping[int, int], ends: Mapping[int, int]
    ) -> tuple[str, int]:
        """Writes a new delta: that of `version`, and the changes from the offsets `since` on.
        Returns the new delta's name and number of rows.
        """
        changes = self._latest_rows(since, ends)
        if version.delta:
            both = self._rows(version.delta).unionByName(changes)
            latest = both.groupBy(KEY).agg(F.max_by(F.struct(*both.columns), "_offset").alias("_last"))
            changes = latest.select("_last.*")
        return (folder := f"{number}-delta"), self._write_sorted(folder, changes)

    def merge_parts(
        self, number: int, version: TableVersion, delta: tuple[str, int], starts: Mapping[int, int],
        parts: Sequence[int],
    ) -> tuple[Sequence[str], int]:  # fmt: skip
        """Writes some or all parts of the base anew: the rows of the base and of a delta, without
        those that the topic's retention has deleted. delta: its name and number of rows.
        """
        count, base = len(version.base), self._rows(*(version.base[part] for part in parts))
        rows = merge_delta(base, self._rows(delta[0]).where(_part_of_row(count).isin(*parts)))
        for partition, start in starts.items():
            rows = rows.where((F.col("_partition") != partition) | (F.col("_offset") >= start))
        all_rows = version.base_rows + delta[1]
        some = None if len(parts) == count else (parts, count)
        return self._write_parts(f"{number}-base", rows, all_rows, some)

    def write_rest(self, number: int, delta: str, count: int, merged: Sequence[int]) -> str:
        """Writes the rows of a delta that are not in the `merged` parts, of `count` parts. Returns
        the folder's name; empty if there are no such rows.
        """
        rest = self._rows(delta).where(~_part_of_row(count).isin(*merged))
        return folder if self._write_sorted(folder := f"{number}-rest", rest) else ""

    def _write_parts(
        self, folder: str, rows: DataFrame, table_rows: int, some: tuple[Sequence[int], int] | None = None
    ) -> tuple[Sequence[str], int]:
        """Writes the rows of all parts, or of some. table_rows: approximate number of the table's
        rows, from which the number of parts follows. some: the parts that are written, and the
        number of all parts. If there are several, each is sorted, so that a key is in one page.
        Returns the folders' names and the number of rows.
        """
        count = count_parts(table_rows) if some is None else some[1]
        parts = range(count) if some is None else some[0]
        if count == 1:
            return [folder], self._write(folder, rows)
        rows = rows.withColumn(_PART, _part_of_row(count)).repartition(len(parts), _PART)
        row_count = self._write(folder, rows, sort=(_PART, KEY_HASH), partitions=(_PART,))
        names = self._checkpoint.list_folder(f"{self._folder}/{folder}")
        return [f"{folder}/{name}" if (name := f"{_PART}={part}") in names else "" for part in parts], row_count

    def delete_all_but(self, folders: frozenset[str]) -> None:
        for name in self._checkpoint.list_folder(self._folder) - folders - {_EMPTY}:
            folder = f"{self._folder}/{name}"
            if not (parts := {it for it in folders if it.startswith(f"{name}/")}):
                self._checkpoint.delete_folder(folder)
                continue
            for part in self._checkpoint.list_folder(folder):
                if part.startswith(_PART) and f"{name}/{part}" not in parts:
                    self._checkpoint.delete_folder(f"{folder}/{part}")

    def _rows(self, *folders: str) -> DataFrame:
        return self._spark.read.schema(self.schema).parquet(*self.paths(folders))

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
        hash_ = key_hash(self._pipeline.spec.sources[self._name], rows.schema)
        return rows.withColumns({DELETED: deleted, KEY_HASH: hash_}).drop("_value", decode.DECODE_ERROR)

    def _write_sorted(self, folder: str, rows: DataFrame) -> int:
        return self._write(folder, rows.coalesce(1), sort=(KEY_HASH,))

    def _write(self, folder: str, rows: DataFrame, sort: Sequence[str] = (), partitions: Sequence[str] = ()) -> int:
        """Returns the number of rows. sort: columns by which each file is sorted. partitions:
        columns; the folder has a folder for each of their values.
        """
        count = Observation()
        rows = rows.observe(count, F.count(F.lit(1)).alias("rows"))
        if sort:  # after the observation: Spark does not know the order of observed rows
            rows = rows.sortWithinPartitions(*sort)
        writer = rows.write.mode("overwrite").options(**_PAGES)
        writer.partitionBy(*partitions).parquet(self.path(folder))
        return int(count.get["rows"])


def _part_of_row(count: int) -> Column:
    """The part that a row is in, of `count` parts: the first bits of the key's hash."""
    return F.shiftrightunsigned(KEY_HASH, 65 - count.bit_length()) if count > 1 else F.lit(0).cast("bigint")


def merge_delta(base: DataFrame, delta: DataFrame) -> DataFrame:
    """Rows of the base whose key is not in the delta, and rows of the delta, without deleted
    ones.
    """
    unchanged = base.join(F.broadcast(delta.select(KEY)), KEY, "left_anti")
    return unchanged.unionByName(delta).where(~F.col(DELETED))
