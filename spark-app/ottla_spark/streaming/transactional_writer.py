"""Writes batches to a topic in transactions, so that a `read_committed` consumer reads each row
once.

The rows of a batch are divided among writers, each of which writes its rows in one transaction. The
same transaction commits the number of the batch to a consumer group, as metadata. A batch that
failed, or whose process was killed, runs again with the same number:

- The transactional id consists of pipeline, sink and writer. A new writer with the same id first
  aborts the open transaction of its predecessor and fences it.
- The new writer then reads the committed number. If it is the number of the batch, the predecessor
  had committed its transaction, and the new writer does nothing.

So a writer commits a batch once, whichever process fails. The batch as a whole is written once if
each row goes to the same writer again: see `count_writers`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark.sql import Column, DataFrame, SparkSession

from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError
from ottla_spark.streaming.checkpoint import Checkpoint
from ottla_spark.streaming.encode import RecordEncoder
from ottla_spark.streaming.sink import is_key_value, record_columns
from ottla_spark.streaming.source import ORIGIN_COLUMNS
from ottla_spark.streaming.traced_records import TRACEPARENT, TRACEPARENT_HEADER, traceparent_columns
from ottla_spark.streaming.transform import is_stateful

TRANSACTION_TIMEOUT_MS: Final = 300_000
"""After this time brokers abort a transaction whose writer is gone. A restarted writer aborts it
itself."""
_TIMEOUT_S: Final = 60.0
_RETRY_PAUSE_S: Final = 0.1
_PARTITION: Final = ("_topic", "_partition")
_OFFSET: Final = "_offset"
_SEQUENCE_BITS: Final = 33  # as in Spark's monotonically_increasing_id
_POLL_EVERY: Final = 10_000
_PRODUCER: Final[dict[str, Any]] = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "partitioner": "murmur2_random",  # of Java's client: equal keys go to the same partition
    "queue.buffering.max.kbytes": 65_536,
    "linger.ms": 5,
    "log_level": 0,
}

Record = tuple[bytearray | None, bytearray | None] | tuple[bytearray | None, bytearray | None, str | None]
"""Key and value, and the header `traceparent` where rows have it."""
OpenProducer = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class TransactionalSink:
    """group: prefix of the transactional ids, and the consumer group of the batch numbers.
    client: properties of librdkafka.
    """

    topic: str
    group: str
    client: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """query: id of Spark's checkpoint of the query. Another checkpoint counts batches from 0."""

    query: str
    number: int

    @property
    def metadata(self) -> str:
        """The metadata of the offset that is committed to the consumer group."""
        return f"{self.query} {self.number}"

    def is_written(self, committed: str | None) -> bool:
        """True if the committed metadata says that this batch was written, or a later one."""
        query, _, number = (committed or "").partition(" ")
        return query == self.query and int(number) >= self.number


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


def divide(rows: DataFrame, key: Column, value: Column, *, by_key: bool, writers: int) -> DataFrame:
    """Records (key, value, and the header `traceparent` where rows have it) of the rows; partition
    n of the result has those of writer n.

    Rows that have their origin are divided by the source's partition and keep its order. Others are
    divided by their key or, without one, by their value.
    """
    origin = [name for name in ORIGIN_COLUMNS if name in rows.columns]
    records = rows.select(key.alias("key"), value.alias("value"), *traceparent_columns(rows), *origin)
    if {*_PARTITION, _OFFSET} <= set(origin):
        return records.repartition(writers, *_PARTITION).sortWithinPartitions(*_PARTITION, _OFFSET)
    return records.repartition(writers, "key" if by_key else "value")


class TransactionalWriter:
    """Writes the batches of a query. `planned`: the number of writers of new batches.

    The checkpoint has the number of writers of the last batch. If that batch runs again, it has as
    many writers again, even if the pipeline or the topic has changed in between.
    """

    def __init__(
        self, sink: Sink, encode: RecordEncoder, target: TransactionalSink, checkpoint: Checkpoint, planned: int
    ) -> None:
        self._sink = sink
        self._encode = encode
        self._target = target
        self._checkpoint = checkpoint
        self._planned = planned
        self._file = f"writers-{sink.query_name}.json"
        text = checkpoint.read_text(self._file)
        self._stored: int | None = None if text is None else json.loads(text)
        self._unfinished = checkpoint.unfinished_batch(sink.query_name)

    def __call__(self, rows: DataFrame, number: int) -> None:
        if number != self._unfinished or self._stored is None:
            self._store(self._planned)
        key, value = record_columns(rows, self._sink, self._encode)
        by_key = bool(self._sink.key) or is_key_value(rows)
        records = divide(rows, key, value, by_key=by_key, writers=self._stored or self._planned)
        write = partial(_write_partition, self._target, self._batch(number), open_producer)
        traceparents = [TRACEPARENT] if TRACEPARENT in records.columns else []
        records.select("key", "value", *traceparents).rdd.mapPartitionsWithIndex(write).count()

    def _store(self, writers: int) -> None:
        if writers != self._stored:
            self._checkpoint.write_text(self._file, json.dumps(writers))
            self._stored = writers

    def _batch(self, number: int) -> Batch:
        return Batch(self._checkpoint.query_id(self._sink.query_name), number)


def start_worker(spark: SparkSession) -> None:
    """Starts a Python process of the executor and imports this module in it. Spark keeps it for the
    first batch, which would wait for it.
    """
    spark.sparkContext.parallelize([None], 1).foreach(_ignore_row)


def _ignore_row(row: None) -> None:
    pass


def open_producer(properties: dict[str, Any]) -> Producer:
    """An idempotent, transactional producer of librdkafka."""
    return Producer(properties)


def _write_partition(
    sink: TransactionalSink, batch: Batch, connect: OpenProducer, writer: int, records: Iterator[Record]
) -> Iterator[None]:
    """Runs in an executor. Raises PipelineError."""
    first = next(records, None)
    if first is not None:
        try:
            _write_transaction(sink, batch, connect, writer, chain([first], records))
        except KafkaException as error:
            reason = error.args[0]
            raise PipelineError(f"cannot write to the topic {sink.topic} in a transaction: {reason.str()}") from error
    return iter(())


def _write_transaction(
    sink: TransactionalSink, batch: Batch, connect: OpenProducer, writer: int, records: Iterator[Record]
) -> None:
    # Each writer has a committed offset of its own in the group: that of the partition with its
    # number. Consumers of the topic are in other groups.
    slot = TopicPartition(sink.topic, writer)
    consumer = Consumer(
        {
            **sink.client,
            "group.id": sink.group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        producer = connect({**sink.client, **_PRODUCER, "transactional.id": f"{sink.group}.{writer}"})
        _retry(partial(producer.init_transactions, _TIMEOUT_S))
        (committed,) = consumer.committed([slot], timeout=_TIMEOUT_S)
        if batch.is_written(committed.metadata):
            return
        producer.begin_transaction()
        _produce(producer, sink.topic, batch.number, writer, records)
        position = TopicPartition(sink.topic, writer, batch.number, metadata=batch.metadata)
        group = consumer.consumer_group_metadata()
        _retry(partial(producer.send_offsets_to_transaction, [position], group, _TIMEOUT_S))
        _retry(partial(producer.commit_transaction, _TIMEOUT_S))
    finally:
        consumer.close()


def _produce(producer: Any, topic: str, batch: int, writer: int, records: Iterator[Record]) -> None:
    """Headers are those of `sink.to_records`."""
    first = writer << _SEQUENCE_BITS
    batch_header = ("ottla.batch", str(batch).encode())
    for sequence, (key, value, *traceparents) in enumerate(records, first):
        headers = [batch_header, ("ottla.sequence", str(sequence).encode())]
        headers += [(TRACEPARENT_HEADER, one.encode()) for one in traceparents if one is not None]
        while True:
            try:
                producer.produce(topic, _to_bytes(value), _to_bytes(key), headers=headers)
                break
            except BufferError:  # the queue of records is full
                producer.poll(0.1)
        if sequence % _POLL_EVERY == 0:
            producer.poll(0)


def _to_bytes(field: bytearray | None) -> bytes | None:
    """librdkafka takes no bytearray, not even an empty one."""
    return None if field is None else bytes(field)


def _retry(call: Callable[[], object]) -> None:
    """Repeats the call while its error is retriable. If it fails for good, the next writer with the
    same transactional id aborts the open transaction.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_PAUSE_S)
