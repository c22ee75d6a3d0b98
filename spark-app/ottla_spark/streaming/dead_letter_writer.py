"""Writes dead letters, and stores the offsets up to which records were searched for them.

Queries only *count* the rows that do not decode or do not satisfy an expectation: mostly there are
none, and counting is cheap. When a batch has some, its records are read again and those rows are
written as dead letters. The file `letters.json` beside the checkpoint has the offset of each
partition up to which records were searched. A process that was killed between a batch and its dead
letters searches again from there, so dead letters are written at least once.

Records of tables are searched after each query's first batch, then after batches at most every ten
seconds, and when the pipeline ends, even if no batch joins them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ottla_operator.resources.sources import Source
from ottla_spark.definition import PipelineDefinition
from ottla_spark.progress import BatchProgress, Offsets, TopicPartition, format_offsets, parse_offsets
from ottla_spark.streaming import dead_letters, decode, sink, source, transform
from ottla_spark.streaming.checkpoint import Checkpoint
from ottla_spark.streaming.kafka_admin import KafkaAdmin
from ottla_spark.streaming.reference_table import ReferenceTable

OFFSETS_FILE: Final = "letters.json"
_SAVE_INTERVAL_S: Final = 10.0


class DeadLetterWriter:
    """Writes the dead letters of a running pipeline, except those of `deferred` steps, which the
    sinks write.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: PipelineDefinition,
        kafka: dict[str, str],
        admin: KafkaAdmin,
        checkpoint: Checkpoint,
        tables: Mapping[str, ReferenceTable],
        deferred: frozenset[str],
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._kafka = kafka
        self._admin = admin
        self._checkpoint = checkpoint
        self._tables = tables
        self._deferred = deferred
        self._started_queries: set[str] = set()
        self._searched = self._load()
        self._save()

    def after_batch(self, batch: BatchProgress, ends: Offsets) -> None:
        """Searches the records of a batch if it has dead letters, and those before a query's first
        batch that no process has searched.

        ends: smallest end offsets of all queries; empty while some are unknown.
        """
        is_first = batch.query not in self._started_queries
        self._started_queries.add(batch.query)
        has_gap = is_first and any(start > self._searched.get(it, 0) for it, start in batch.start_offsets.items())
        if batch.dead_letters or has_gap:
            self._search(batch.end_offsets)
            self._save()
        self._advance(ends)
        if is_first or time.monotonic() - self._saved_at_s > _SAVE_INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Searches the tables and saves the offsets."""
        self._search_tables()
        self._save()

    def _load(self) -> dict[TopicPartition, int]:
        text = self._checkpoint.read_text(OFFSETS_FILE)
        if text is not None:
            return parse_offsets(text)
        starts: dict[TopicPartition, int] = {}
        for spec in self._pipeline.spec.sources.values():
            if spec.mode == "table":
                starts |= self._admin.list_offsets([spec.topic], "earliest")
            elif spec.starting_time_ms is not None:
                starts |= self._admin.list_offsets_at(spec.topic, spec.starting_time_ms)
            else:
                starts |= self._admin.list_offsets([spec.topic], "latest" if spec.starts_at_latest else "earliest")
        return starts

    def _save(self) -> None:
        self._checkpoint.write_text(OFFSETS_FILE, json.dumps(format_offsets(self._searched), indent=2))
        self._saved_at_s = time.monotonic()

    def _advance(self, ends: Offsets) -> None:
        for partition, end in ends.items():
            self._searched[partition] = max(end, self._searched.get(partition, 0))

    def _search(self, ends: Offsets) -> None:
        """Writes the dead letters of the streams' records between the offsets searched so far and
        these ends.
        """
        raw: dict[str, DataFrame] = {}
        for name, spec in self._pipeline.spec.streams.items():
            # A query that does not read this source has no end offsets of it: there is nothing new
            # to search.
            known = ends if any(topic == spec.topic for topic, _ in ends) else self._searched
            upto = {partition: end for (topic, partition), end in known.items() if topic == spec.topic}
            raw[name] = self._unsearched(spec, upto)
        tables = {name: table.rows() for name, table in self._tables.items()}
        for table in self._tables.values():
            table.refresh()
        collector = transform.RejectedRowCollector(skip=self._deferred)
        transform.build_views(self._spark, self._pipeline, raw, collector, tables)
        self._write(collector.letters)
        self._advance(ends)

    def _search_tables(self) -> None:
        for name, spec in self._pipeline.spec.tables.items():
            ends = self._admin.list_offsets([spec.topic], "latest")
            if any(end > self._searched.get(partition, 0) for partition, end in ends.items()):
                upto = {partition: end for (_, partition), end in ends.items()}
                records = self._unsearched(spec, upto).where("_value IS NOT NULL")
                self._write([dead_letters.from_undecoded(decode.decode_rows(records, self._pipeline, name))])
                self._searched |= ends

    def _unsearched(self, spec: Source, upto: dict[int, int]) -> DataFrame:
        since = {partition: min(end, self._searched.get((spec.topic, partition), 0)) for partition, end in upto.items()}
        return source.read_range(self._spark, spec, self._kafka, since, upto)

    def _write(self, letters: list[DataFrame]) -> None:
        spec = self._pipeline.spec.dead_letter
        if letters and spec is not None:
            records = dead_letters.to_records(
                reduce(lambda all_before, it: all_before.unionByName(it), letters), self._pipeline.name
            )
            sink.write_records(records, spec.topic, self._kafka)
