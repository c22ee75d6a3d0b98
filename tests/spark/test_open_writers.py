"""The producer of a transactional sink stays open for the next batch, and each row is written once
if another process has taken its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla_spark.streaming import partition_writer
from ottla_spark.streaming.partition_writer import Batch, TransactionalSink, open_producer, write_partition
from tests.spark.conftest import Topics, ids

Records = Iterator[tuple[bytearray | None, bytearray | None]]


def records(*numbers: int) -> Records:
    return ((None, bytearray(b'{"id": %d}' % it)) for it in numbers)


class Process:
    """A process of an executor, with its own open producers."""

    def __init__(self, sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sink = sink
        self._monkeypatch = monkeypatch
        self._writers: dict[str, Any] = {}
        self.opened = 0

    def write(self, number: int, rows: Records, *, query: str = "a") -> None:
        with self._monkeypatch.context() as patch:
            patch.setattr(partition_writer, "_open_writers", self._writers)
            write_partition(self._sink, Batch(query, number), self._open, 0, rows)

    def _open(self, properties: dict[str, Any]) -> Producer:
        self.opened += 1
        return open_producer(properties)


@pytest.fixture
def sink(topics: Topics, request: pytest.FixtureRequest) -> TransactionalSink:
    name = request.node.name.replace("_", "-")
    topics.create(name)
    return TransactionalSink(name, f"{name}.sink", {"bootstrap.servers": topics.address})


def test_producer_stays_open_only_for_the_next_batch_of_its_checkpoint(
    topics: Topics, sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(sink, monkeypatch)
    for number in range(4):
        process.write(number, records(number))
    assert process.opened == 1
    process.write(3, records(3))
    assert process.opened == 2, "the batch runs again"
    process.write(9, records(9))
    assert process.opened == 3, "other processes may have written batches 4 to 8"
    process.write(10, records(10), query="b")
    assert process.opened == 4, "query b has another checkpoint"
    monkeypatch.setattr(partition_writer, "_IDLE_S", 0.0)
    process.write(11, records(11), query="b")
    assert process.opened == 5
    assert ids(topics, sink.topic) == [0, 1, 2, 3, 9, 10, 11]


def test_producer_that_another_process_has_fenced_writes_nothing(
    topics: Topics, sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Process(sink, monkeypatch), Process(sink, monkeypatch)
    one.write(0, records(0))
    other.write(1, records(1))
    one.write(1, records(1))
    assert ids(topics, sink.topic) == [0, 1], "the other process has written the batch"
    other.write(2, records(2))
    assert ids(topics, sink.topic) == [0, 1, 2]
    assert (one.opened, other.opened) == (2, 2)


def test_batch_whose_rows_end_with_an_error_is_written_by_another_producer(
    topics: Topics, sink: TransactionalSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> Records:
        yield from records(1)
        raise ZeroDivisionError

    process = Process(sink, monkeypatch)
    process.write(0, records(0))
    with pytest.raises(ZeroDivisionError):
        process.write(1, failing())
    process.write(1, records(1, 2))
    assert process.opened == 2
    assert ids(topics, sink.topic) == [0, 1, 2]
