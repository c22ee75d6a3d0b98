"""Reference tables: the latest row of each key of a topic, kept in files beside the checkpoint.

A batch refreshes the table after its records were chosen: it reads what the topic has since the
last version. So a record sees the rows that were written before it. All scans of a batch read one
version. A batch that runs again reads a newer version, which is complete too. Of a large table, a
batch reads only the rows of its keys if its plan allows that: see `key_lookups`.

The file `table-<source>.json` beside the checkpoint has the current version, and is written after
that version's files. Files that neither the current version nor a running batch needs are deleted.
If a process is killed before it has deleted them, the next one does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ottla_spark.definition import PipelineDefinition
from ottla_spark.errors import PipelineError
from ottla_spark.streaming import source
from ottla_spark.streaming.checkpoint import Checkpoint
from ottla_spark.streaming.kafka_admin import KafkaAdmin
from ottla_spark.streaming.key_lookups import looked_up_hashes, plan_of_batch
from ottla_spark.streaming.table_files import DELETED, KEY, TableFiles, merge_delta
from ottla_spark.streaming.table_relation import KEY_HASH, BatchId, FolderScan, read_folders_of_batch
from ottla_spark.streaming.table_version import (
    DEFAULT_DELETE_RETENTION_MS,
    ReadChanges,
    TableVersion,
    TopicOffsets,
    Unchanged,
    max_looked_up_rows,
    parts_to_merge,
    plan_refresh,
    with_merged_parts,
)


class ReferenceTable:
    """A table of a running pipeline. Thread-safe: queries refresh it one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: PipelineDefinition,
        name: str,
        kafka: Mapping[str, str],
        admin: KafkaAdmin,
        checkpoint: Checkpoint,
    ) -> None:
        self._spark = spark
        self._name = name
        self._source = pipeline.spec.sources[name]
        self._admin = admin
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        read = partial(source.read_range, spark, self._source, kafka)
        self._files = TableFiles(spark, pipeline, name, checkpoint, read)
        retention = admin.read_topic_config(self._source.topic, "delete.retention.ms")
        self._delete_retention_ms = DEFAULT_DELETE_RETENTION_MS if retention is None else int(retention)
        self._current = self._load()
        self._in_use: dict[str, tuple[BatchId, TableVersion]] = {}
        self._looked_up: dict[str, tuple[BatchId, Any]] = {}
        self._kept_folders = frozenset[str]() if self._current is None else self._current.folders
        self._files.delete_all_but(self._kept_folders)

    def rows(self) -> DataFrame:
        """Rows of the version that each batch reads, with the source's columns."""
        base = self._read("base", lambda version: version.base)
        delta = self._read("delta", lambda version: [version.delta])
        return merge_delta(base, delta).drop(KEY, DELETED, KEY_HASH).alias(self._files.alias)

    def _read(self, what: str, folders: Callable[[TableVersion], Iterable[str]]) -> DataFrame:
        def scan_of(batch: BatchId) -> FolderScan:
            version = self.version_of(batch)
            return FolderScan(self._files.paths(folders(version)), self._hashes(batch, version))

        name = f"{what} of {self._files.path('')} {id(self)}"
        return read_folders_of_batch(self._spark, name, self._files.schema, scan_of)

    def _hashes(self, batch: BatchId, version: TableVersion) -> Any:
        """Hashes of the keys that a batch needs; None if it reads the whole table."""
        key, max_rows = self._files.key, max_looked_up_rows(version.base_rows)
        plan = plan_of_batch(self._spark, batch) if key is not None and max_rows else None
        if key is None or plan is None:
            return None
        known, hashes = self._looked_up.get(batch.query, (None, None))
        if known != batch:
            hashes = looked_up_hashes(self._spark, plan, key, max_rows)
            self._looked_up[batch.query] = (batch, hashes)
        return hashes

    def version_of(self, batch: BatchId) -> TableVersion:
        """The version that a batch reads. The first scan of a batch refreshes the table."""
        with self._lock:
            known, version = self._in_use.get(batch.query, (None, None))
            if known != batch or version is None:
                version = self._refresh()
                self._in_use[batch.query] = (batch, version)
                self._delete_unused()
            return version

    def _delete_unused(self) -> None:
        versions = [version for _, version in self._in_use.values()]
        needed = frozenset[str]().union(*(it.folders for it in versions))
        if needed != self._kept_folders:
            self._files.delete_all_but(needed)
            self._kept_folders = needed

    def read_ahead(self) -> None:
        """Reads the topic before the first batch, which then finds few changes or none."""
        with self._lock:
            self._refresh()

    def refresh(self) -> None:
        """Reads the changes of the topic, for further scans outside of streaming queries."""
        with self._lock:
            self._in_use.pop(BatchId().query, None)
        self.version_of(BatchId())

    def _refresh(self) -> TableVersion:
        topic = self._topic_offsets()
        now_ms = time.time_ns() // 1_000_000
        before, definition = self._current, self._files.definition_digest
        action = plan_refresh(before, definition, topic, now_ms, self._delete_retention_ms)
        match action:
            case Unchanged() if before is not None:
                self._current = replace(before, refreshed_ms=now_ms)
                return self._current
            case ReadChanges(since) if before is not None:
                version = self._apply_changes(before, topic, since, now_ms)
            case _:
                number = 0 if before is None else before.number + 1
                base, rows = self._files.write_base(number, topic.starts, topic.ends)
                version = TableVersion(number, tuple(base), "", rows, topic.starts, topic.ends, definition, now_ms)
        self._checkpoint.write_text(self._file, json.dumps(asdict(version), indent=2))
        self._current = version
        return version

    def _apply_changes(
        self, before: TableVersion, topic: TopicOffsets, since: Mapping[int, int], now_ms: int
    ) -> TableVersion:
        number = before.number + 1
        delta, rows = self._files.write_delta(number, before, since, topic.ends)
        version = replace(before, number=number, delta=delta if rows else "", ends=topic.ends, refreshed_ms=now_ms)
        if not (parts := parts_to_merge(before, topic, rows)):
            return version
        folders, merged_rows = self._files.merge_parts(number, before, (delta, rows), topic.starts, parts)
        rest = "" if len(parts) == len(before.base) else self._files.write_rest(number, delta, len(before.base), parts)
        return with_merged_parts(replace(version, delta=rest), parts, folders, merged_rows, topic.starts)

    def _topic_offsets(self) -> TopicOffsets:
        topics, isolation = [self._source.topic], self._source.isolation
        starts = self._admin.list_offsets(topics, "earliest")
        ends = self._admin.list_offsets(topics, "latest", isolation)
        return TopicOffsets(*({at: offset for (_, at), offset in offsets.items()} for offsets in (starts, ends)))

    def _load(self) -> TableVersion | None:
        text = self._checkpoint.read_text(self._file)
        try:
            return None if text is None else TableVersion.parse(json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise PipelineError(f"{self._checkpoint.location}/{self._file} is corrupt ({error})") from error

    @property
    def _file(self) -> str:
        return f"table-{self._name}.json"
