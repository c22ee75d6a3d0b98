"""Writes batches to a topic in transactions, so that a `read_committed` consumer reads each row
once.

The rows of a batch are divided among writers, each of which writes its rows in one transaction. The
same transaction commits the number of the batch to a consumer group, as metadata. A batch that
failed, or whose process was killed, runs again with the same number:

- The transactional id consists of pipeline, sink and writer. A new writer with the same id first
  aborts the open transaction of its predecessor and fences it.
- The new writer then reads the committed number. If it is the number of the batch, the predecessor
  had committed its transaction, and the new writer does nothing.

A process that has committed the batch before this one goes on with the same producer. If another
process has opened a producer for this writer since, the old producer is fenced: the brokers refuse
it before it takes a row. The process then opens a new producer, as above.

After a batch of few rows, one writer writes the next, in a process of its own
(`writer_processes`).

So a writer commits a batch once, whichever process fails. The batch as a whole is written once if
each row goes to the same writer again: see `count_writers`.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ottla_operator.resources.sinks import Sink
from ottla_spark.streaming.checkpoint import Checkpoint
from ottla_spark.streaming.encode import RecordEncoder
from ottla_spark.streaming.partition_writer import Batch, TransactionalSink, ignore_row, open_producer, write_partition
from ottla_spark.streaming.sink import is_key_value, record_columns
from ottla_spark.streaming.source import ORIGIN_COLUMNS
from ottla_spark.streaming.traced_records import TRACEPARENT, traceparent_columns
from ottla_spark.streaming.transform import is_stateful
from ottla_spark.streaming.writer_processes import collect_in_own_processes

FEW_ROWS: Final = 30_000
"""One writer alone writes a batch if the batch before it had at most this many rows, or a third of
them if that batch had several writers. One process writes them in 0.3 s. With several writers,
Spark runs a writer half the time in a process that has no open producer for it.
"""
_PARTITION: Final = ("_topic", "_partition")
_OFFSET: Final = "_offset"


def count_writers(rows: DataFrame, partitions: int) -> int:
    """Number of writers of the sink's batches. `partitions`: number of the topic's partitions.

    A batch that runs again has the same records. Where each row is computed from one record, it has
    the same rows too, so a hash of a row selects the same writer. This does not hold for tables,
    which can change before the batch runs again, for functions such as rand(), and for state: which
    of two duplicates is kept, and the last digit of a sum, depend on the order of the records. In
    these cases one writer writes the whole batch, so that either none or all of its rows are
    committed.
    """
    plan = rows._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    reads_tables = any(not leaf.isStreaming() for leaf in map(leaves.apply, range(leaves.size())))
    return 1 if reads_tables or is_stateful(rows) or not plan.deterministic() else partitions


def choose_writers(planned: int, last: int | None, rows: int | None) -> int:
    """Number of writers of the next batch. planned: number of writers of batches with many rows.
    last, rows: number of writers and of rows of the last batch; rows is None for a driver's first
    batch, which can have any number of rows. Each change of the number costs new producers, so it
    stays while rows change a little.
    """
    few = FEW_ROWS if last == 1 else FEW_ROWS // 3
    return planned if rows is None or rows > few else 1


def divide(records: DataFrame, origin: Collection[str], *, by_key: bool, writers: int) -> DataFrame:
    """Partition n of the result has the records of writer n. `origin`: those of the records'
    columns that say where a row came from.

    Records with the columns `_topic`, `_partition` and `_offset` are divided by the source's
    partition and keep its order. Others are divided by their key or, without one, by their value.
    """
    if {*_PARTITION, _OFFSET} <= set(origin):
        return records.repartition(writers, *_PARTITION).sortWithinPartitions(*_PARTITION, _OFFSET)
    return records.repartition(writers, "key" if by_key else "value")


class TransactionalWriter:
    """Writes the batches of a query. `planned`: number of writers of batches with many rows.

    The checkpoint has the number of writers of the last batch. If that batch runs again, it has as
    many writers again, even if the pipeline or the topic has changed in between.
    """

    def __init__(
        self,
        sink: Sink,
        rows: DataFrame,
        encode: RecordEncoder,
        target: TransactionalSink,
        checkpoint: Checkpoint,
        planned: int,
    ) -> None:
        """`rows`: the stream, whose columns each batch has."""
        self._sink = sink
        self._columns = record_columns(rows, sink, encode)
        self._origin = [name for name in ORIGIN_COLUMNS if name in rows.columns]
        self._written = ["key", "value", *([TRACEPARENT] if traceparent_columns(rows) else [])]
        self._by_key = bool(sink.key) or is_key_value(rows)
        self._target = target
        self._checkpoint = checkpoint
        self._planned = planned
        self._file = f"writers-{sink.query_name}.json"
        text = checkpoint.read_text(self._file)
        self._stored: int | None = None if text is None else json.loads(text)
        self._unfinished = checkpoint.unfinished_batch(sink.query_name)
        self._query_id: str | None = None
        self._rows: int | None = None  # of the last batch
        self._writers_at_first: int | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        if number != self._unfinished or self._stored is None:
            self._store(choose_writers(self._planned, self._stored, self._rows))
        if self._query_id is None:
            self._query_id = self._checkpoint.query_id(self._sink.query_name)
        records = rows.select(*self._columns, *self._origin)
        writers = self._stored or self._planned
        records = divide(records, self._origin, by_key=self._by_key, writers=writers)
        write = partial(write_partition, self._target, Batch(self._query_id, number), open_producer)
        written = records.select(*self._written).rdd.mapPartitionsWithIndex(write)
        self._rows = sum(collect_in_own_processes(written, self._process_name(writers)))

    def _process_name(self, writers: int) -> str:
        """Name of the Python processes for a batch with this many writers. The processes that are
        started in advance are for the first batch, whatever its number of writers. A later batch
        with another number of writers has processes of another name. Otherwise Spark could run a
        single writer in any of several processes of the same name.
        """
        if self._writers_at_first is None:
            self._writers_at_first = writers
        name = self._sink.query_name
        return name if writers == self._writers_at_first else f"{name}.{writers}"

    def _store(self, writers: int) -> None:
        if writers != self._stored:
            self._checkpoint.write_text(self._file, json.dumps(writers))
            self._stored = writers


def start_worker(spark: SparkSession, sink: str) -> None:
    """Starts a Python process of the sink and imports `partition_writer` in it. Spark keeps it for
    the first batch, which would otherwise wait for it. sink: name of its query.
    """
    collect_in_own_processes(spark.sparkContext.parallelize([None], 1).map(ignore_row), sink)
