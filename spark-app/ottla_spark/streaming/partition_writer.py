"""Writes to a topic in transactions. The rows of a batch are divided among several writers, and
each writes its rows and the number of the batch in one transaction (see `transactional_writer`).

It runs in Python processes of the executors. They import only this module: to import the rest of a
pipeline would take four times as long. Spark gives a process the tasks of one batch after the
other, so a producer stays open for the next batch of its writer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla_spark.errors import PipelineError

TRACEPARENT_HEADER: Final = "traceparent"
TRANSACTION_TIMEOUT_MS: Final = 300_000
"""After this time brokers abort a transaction whose writer is gone. A restarted writer aborts it
itself."""
_TIMEOUT_S: Final = 60.0
_RETRY_PAUSE_S: Final = 0.1
_IDLE_S: Final = 60.0
"""A producer that was idle for this time is not used again: brokers close idle connections, and
forget producer ids."""
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
    """Where writers write. group: prefix of the transactional ids, and the consumer group of the
    batch numbers. client: properties of librdkafka.
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


def ignore_row(row: None) -> None:
    """Does nothing. To call it, a Python process of Spark has to import this module."""


def open_producer(properties: dict[str, Any]) -> Producer:
    """An idempotent, transactional producer of librdkafka."""
    return Producer(properties)


def write_partition(
    sink: TransactionalSink, batch: Batch, connect: OpenProducer, writer: int, records: Iterator[Record]
) -> Iterator[int]:
    """Runs in an executor. Yields one item: the number of rows that were written. `connect`: opens
    a producer. `writer`: number of the writer. Raises PipelineError.
    """
    first, written = next(records, None), 0
    if first is not None:
        try:
            written = _write_transaction(sink, batch, connect, writer, chain([first], records))
        except KafkaException as error:
            reason = error.args[0]
            raise PipelineError(f"cannot write to the topic {sink.topic} in a transaction: {reason.str()}") from error
    return iter((written,))


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """A producer of a writer. written: the batch of its last committed transaction; None if it has
    none yet. used_at_s: monotonic time of that commit.
    """

    sink: TransactionalSink
    producer: Any
    group_metadata: Any
    written: Batch | None
    used_at_s: float

    def can_write(self, sink: TransactionalSink, batch: Batch) -> bool:
        """True if the producer wrote the batch before this one, a short time ago."""
        before = Batch(batch.query, batch.number - 1)
        return self.sink == sink and self.written == before and time.monotonic() - self.used_at_s < _IDLE_S


_open_writers: Final[dict[str, OpenWriter]] = {}
"""The writers of this process, by their transactional ids."""


def _write_transaction(
    sink: TransactionalSink, batch: Batch, connect: OpenProducer, writer: int, records: Iterator[Record]
) -> int:
    opened = _begin_in_open_writer(sink, batch, writer) or _begin_in_new_writer(sink, batch, connect, writer)
    if opened is None:
        return 0
    written = _produce(opened.producer, sink.topic, batch.number, writer, records)
    if opened.written is None:
        # After the records: they create the topic if it does not exist, and the number is committed
        # as an offset of that topic.
        _send_batch_number(opened, batch, writer)
    _retry(partial(opened.producer.commit_transaction, _TIMEOUT_S))
    _open_writers[f"{sink.group}.{writer}"] = replace(opened, written=batch, used_at_s=time.monotonic())
    return written


def _begin_in_open_writer(sink: TransactionalSink, batch: Batch, writer: int) -> OpenWriter | None:
    """Begins a transaction of the producer that wrote the batch before this one. None if this
    process has no such producer, or if another process, which may have written this batch, has
    fenced it since. The batch's number goes first, so that the brokers refuse a fenced producer
    before it has taken any record.
    """
    opened = _open_writers.pop(f"{sink.group}.{writer}", None)
    if opened is None or not opened.can_write(sink, batch):
        return None
    try:
        opened.producer.begin_transaction()
        _send_batch_number(opened, batch, writer)
    except KafkaException as error:
        if error.args[0].retriable():
            raise  # the brokers have not responded in time
        return None
    return opened


def _begin_in_new_writer(
    sink: TransactionalSink, batch: Batch, connect: OpenProducer, writer: int
) -> OpenWriter | None:
    """Opens a producer, which fences every other one of this writer, and begins a transaction. None
    if the batch is written already.
    """
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
        (committed,) = consumer.committed([TopicPartition(sink.topic, writer)], timeout=_TIMEOUT_S)
        if batch.is_written(committed.metadata):
            return None
        producer.begin_transaction()
        return OpenWriter(sink, producer, consumer.consumer_group_metadata(), None, 0.0)
    finally:
        consumer.close()


def _send_batch_number(opened: OpenWriter, batch: Batch, writer: int) -> None:
    # Each writer has a committed offset of its own in the group: that of the partition with its
    # number. Consumers of the topic are in other groups.
    position = TopicPartition(opened.sink.topic, writer, batch.number, metadata=batch.metadata)
    _retry(partial(opened.producer.send_offsets_to_transaction, [position], opened.group_metadata, _TIMEOUT_S))


def _produce(producer: Any, topic: str, batch: int, writer: int, records: Iterator[Record]) -> int:
    """Sends the records, with the headers that `topic_writer` writes too. Returns the number of
    records, which is at least 1.
    """
    first = sequence = writer << _SEQUENCE_BITS
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
    return sequence - first + 1


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
