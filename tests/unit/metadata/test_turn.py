"""One change of the metadata at a time, whatever becomes of those who wanted it."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla_broker.config import Config
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.metadata_writer import MetadataWriter
from ottla_broker.metadata.records import MetadataRecord, ProducerIdsRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


class SlowLog:
    """Commits when it is told to, in the order in which it was asked."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.asked: list[tuple[Sequence[MetadataRecord], asyncio.Future[MetadataDelta]]] = []

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        committed: asyncio.Future[MetadataDelta] = asyncio.get_running_loop().create_future()
        self.asked.append((records, committed))
        return await committed

    def hears_majority(self, within_s: float) -> bool:
        return True

    def settle(self) -> None:
        records, committed = self.asked.pop(0)
        committed.set_result(self.image.apply_records(enumerate(records, self.image.end_offset)))


def take_next(turn: MetadataWriter) -> "asyncio.Task[int]":
    """Takes the next producer id."""

    def plan() -> tuple[list[MetadataRecord], int]:
        taken = turn.image.next_producer_id
        return [ProducerIdsRecord(taken + 1)], taken

    return asyncio.ensure_future(turn.execute(plan))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_nobody_decides_before_it_is_known_what_became_of_what_somebody_no_longer_waits_for() -> None:
    async def scene() -> None:
        log = SlowLog()
        turn = MetadataWriter(log.image, log, Config.of({"log.dirs": "/nowhere", "node.id": "1"}))
        impatient, second = take_next(turn), take_next(turn)
        await turns()
        impatient.cancel()
        await turns()
        assert len(log.asked) == 1, "the second is decided on an image that lacks what is being committed"
        log.settle()
        await turns()
        log.settle()
        assert await second == 1
        assert impatient.cancelled()

    asyncio.run(scene())


def test_who_gives_up_before_its_turn_decides_nothing() -> None:
    async def scene() -> None:
        log = SlowLog()
        turn = MetadataWriter(log.image, log, Config.of({"log.dirs": "/nowhere", "node.id": "1"}))
        first, impatient, third = (take_next(turn) for _ in range(3))
        await turns()
        impatient.cancel()
        log.settle()
        await turns()
        log.settle()
        assert [await first, await third] == [0, 1]

    asyncio.run(scene())


def test_what_fails_is_told_and_the_next_goes_on() -> None:
    async def scene() -> None:
        log = SlowLog()
        turn = MetadataWriter(log.image, log, Config.of({"log.dirs": "/nowhere", "node.id": "1"}))
        failing, second = take_next(turn), take_next(turn)
        await turns()
        log.asked.pop(0)[1].set_exception(KafkaError(ErrorCode.kafka_storage_error, "the disk is full"))
        with pytest.raises(KafkaError, match="the disk is full"):
            await failing
        await turns()
        log.settle()
        assert await second == 0

    asyncio.run(scene())
