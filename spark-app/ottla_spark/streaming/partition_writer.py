"""One writer of a batch of a topic: writes its rows in one transaction, and the number of the batch
with them (see `transactional_writer`).

It runs in Python processes of the executors, which begin with it: they import this module in a
quarter of the time that the rest of a pipeline would take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


def ignore_row(row: None) -> None:
    """Its call has a process import this module."""


def open_producer(properties: dict[str, Any]) -> Producer:
    """An idempotent, transactional producer of librdkafka."""
    return Producer(properties)


def write_partition(
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
