"""`ottla consume`: the records that are printed, and the offsets that are committed for a group."""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from ottla_broker.wire.records import Record
from ottla_operator.cli import consume
from ottla_operator.cli.consume import printed_offsets
from ottla_operator.kafka.consumer import Consumer
from ottla_operator.kafka.offsets import TopicPartition

AT: TopicPartition = ("t", 0)


def records(first: int, count: int) -> list[Record]:
    return [Record(0, None, str(offset).encode(), offset=offset) for offset in range(first, first + count)]


@dataclass
class BatchConsumer:
    """A consumer of one partition that advances its position by whole batches."""

    batches: Sequence[list[Record]]
    positions: dict[TopicPartition, int] = field(default_factory=lambda: {AT: 0})

    async def records(self) -> AsyncIterator[tuple[TopicPartition, list[Record]]]:
        for batch in self.batches:
            self.positions[AT] = batch[-1].offset + 1
            yield AT, batch


def print_records(
    batches: BatchConsumer, *, end: int | None = None, count: int | None = None
) -> dict[TopicPartition, int]:
    """Prints records. Returns the offsets that would be committed."""
    consumer, ends = cast(Consumer, batches), None if end is None else {AT: end}
    asyncio.run(
        consume._print_records(consumer, ends, count, lambda place, record: (record.value or b"").decode(), None)
    )
    return printed_offsets(consumer, ends)


def test_records_after_the_end_are_neither_printed_nor_committed(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_records(BatchConsumer([records(0, 3), records(3, 4)]), end=5) == {AT: 5}
    assert capsys.readouterr().out.split() == ["0", "1", "2", "3", "4"]


def test_maximum_number_of_records_is_printed_and_committed(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_records(BatchConsumer([records(0, 3), records(3, 4)]), count=4) == {AT: 4}
    assert print_records(BatchConsumer([records(0, 3)]), count=3) == {AT: 3}
    assert capsys.readouterr().out.split() == ["0", "1", "2", "3", "0", "1", "2"]


def test_records_that_could_not_be_printed_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    batches = BatchConsumer([records(0, 3), records(3, 4)])
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(BrokenPipeError):
        print_records(batches)
    assert printed_offsets(cast(Consumer, batches), None) == {AT: 0}
