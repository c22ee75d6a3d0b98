"""Fetching the records that are set aside, and remembering how far that was done.

Queries only *count* the rows that do not decode or break an expectation; nearly always there are none, and nothing is
paid for them. When a batch has some, its records are read again, and those rows alone are made into letters.
`letters.json` beside the checkpoint says up to which offset of each partition that was done: a process that was
killed between a batch and its letters searches again what it had not marked, so letters are written at least once,
and none is missed.

A table's records are searched as they come, apart from the batches that look them up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from ottla_spark import dead_letter, decode, sink, source, transform
from ottla_spark.checkpoint import Checkpoint
from ottla_spark.cluster import Cluster, Partition
from ottla_spark.progress import Batch, offsets
from ottla_spark.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LETTERS: Final = "letters.json"
_REMEMBER_S: Final = 10.0


class SetAside:
    """The letters of a running pipeline. `late`: steps whose letters the sinks write themselves."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        kafka: Mapping[str, str],
        cluster: Cluster,
        kept: Checkpoint,
        late: frozenset[str],
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._kafka = kafka
        self._cluster = cluster
        self._kept = kept
        self._late = late
        self._tables = {name: of for name, of in pipeline.spec.sources.items() if of.mode == "table"}
        self._begun: set[str] = set()
        self._done = self._remembered()
        self._remembered_at = 0.0
        self._remember()

    def after(self, batch: Batch, ends: Mapping[Partition, int]) -> None:
        """Searches what a batch has read, if it has rows to set aside.

        `ends`: up to where all queries are; empty when that is not known.
        """
        first = batch.query not in self._begun
        self._begun.add(batch.query)
        unsearched = first and any(start > self._done.get(partition, 0) for partition, start in batch.starts.items())
        if batch.dead or unsearched:
            self._search(batch.ends)
            self._remember()
        for partition, end in ends.items():
            self._done[partition] = max(end, self._done.get(partition, 0))
        if first or time.monotonic() - self._remembered_at > _REMEMBER_S:
            self._search_tables()
            self._remember()

    def close(self) -> None:
        """The last search, and how far it went."""
        self._search_tables()
        self._remember()

    def _remembered(self) -> dict[Partition, int]:
        text = self._kept.read_text(LETTERS)
        if text is not None:
            return offsets(text)
        begins: dict[Partition, int] = {}
        for of in self._pipeline.spec.sources.values():
            begins |= self._cluster.offsets([of.topic], "earliest" if of.mode == "table" else of.starting_offsets)
        return begins

    def _remember(self) -> None:
        self._kept.write_text(LETTERS, json.dumps(nested(self._done), indent=2))
        self._remembered_at = time.monotonic()

    def _search(self, ends: Mapping[Partition, int]) -> None:
        """Writes the letters of the streams' records that were not searched before, up to these ends."""
        raw: dict[str, DataFrame] = {}
        for name, of in self._pipeline.spec.sources.items():
            if of.mode == "table":
                raw[name] = source.table(self._spark, of, self._kafka)
            else:
                # A query may read other sources only: then nothing of this one is new.
                known = ends if any(topic == of.topic for topic, _ in ends) else self._done
                upto = {partition: end for (topic, partition), end in known.items() if topic == of.topic}
                since = {
                    partition: min(end, self._done.get((of.topic, partition), 0)) for partition, end in upto.items()
                }
                raw[name] = source.between(self._spark, of, self._kafka, since, upto)
        collecting = transform.Collecting(leave_out=self._late | self._tables.keys())
        transform.graph(self._spark, self._pipeline, raw, collecting)
        self._write(collecting.letters)
        for partition, end in ends.items():
            self._done[partition] = max(end, self._done.get(partition, 0))

    def _search_tables(self) -> None:
        for name, of in self._tables.items():
            upto = {partition: end for (_, partition), end in self._cluster.offsets([of.topic], "latest").items()}
            since = {partition: min(end, self._done.get((of.topic, partition), 0)) for partition, end in upto.items()}
            if upto != since:
                records = source.between(self._spark, of, self._kafka, since, upto).where("_value IS NOT NULL")
                self._write([dead_letter.undecoded(decode.decoded(records, of, name))])
                self._done |= {(of.topic, partition): end for partition, end in upto.items()}

    def _write(self, letters: list[DataFrame]) -> None:
        wish = self._pipeline.spec.dead_letter
        if letters and wish is not None:
            together = reduce(lambda found, more: found.unionByName(more), letters)
            sink.write_records(dead_letter.records(together, self._pipeline.name), wish.topic, self._kafka)


def nested(positions: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Offsets as the connector writes them: {topic: {partition: offset}}."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found
