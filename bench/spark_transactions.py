"""A batch written to a topic exactly once, by hand: for `bench.spark_by_hand`.

Plain PySpark has no sink for it, so `foreachPartition` calls a function with a transactional
producer. It does only what exactly once requires: the number of the batch is committed in the
transaction, and a new producer reads it first, as the batch may have been written before. A
producer stays open for the next batch, as those of pipelines do. It does not retry, writes no
headers, and fails if another process has taken its place.

It is a module of its own, because a process keeps a module's variables between two tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row

_TIMEOUT_S: Final = 60.0
_open: Final[dict[str, tuple[Producer, Any, int]]] = {}
"""Producer, metadata of its group and number of its last batch, by name of the job."""


def write_batch(bootstrap: str, topic: str, job: str, batch: int, rows: Iterator[Row]) -> None:
    """Writes a batch in one transaction, unless it was written before. rows: all rows of the batch,
    with `key` and `value`. job: the transactional id, and the group in which the number of the
    batch is committed.
    """
    producer, group, last = _open.pop(job, (None, None, -1))
    if producer is None or last != batch - 1:
        producer, group, last = _open_producer(bootstrap, topic, job)
    if last >= batch:
        return
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, batch + 1)], group, _TIMEOUT_S)
    for row in rows:
        producer.produce(topic, bytes(row.value), bytes(row.key))
    producer.commit_transaction(_TIMEOUT_S)
    _open[job] = producer, group, batch


def _open_producer(bootstrap: str, topic: str, job: str) -> tuple[Producer, Any, int]:
    client = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer(client | {"transactional.id": job, "partitioner": "murmur2_random", "linger.ms": 5})
    producer.init_transactions(_TIMEOUT_S)
    consumer = Consumer(client | {"group.id": job})
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=_TIMEOUT_S)
    group = consumer.consumer_group_metadata()
    consumer.close()
    return producer, group, committed.offset - 1
