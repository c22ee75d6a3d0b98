"""The metadata writer commits one decision at a time, also when callers are cancelled."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla_broker.config import Config
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.metadata_writer import MetadataWriter
from ottla_broker.metadata.records import MetadataRecord, ProducerIdsRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test, run_event_loop


class SlowLog:
    """A metadata log whose commits a test completes, oldest first."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.pending_commits: list[tuple[Sequence[MetadataRecord], asyncio.Future[MetadataDelta]]] = []

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        committed: asyncio.Future[MetadataDelta] = asyncio.get_running_loop().create_future()
        self.pending_commits.append((records, committed))
        return await committed

    def hears_majority(self, within_s: float) -> bool:
        return True

    def complete_commit(self) -> None:
        records, committed = self.pending_commits.pop(0)
        committed.set_result(self.image.apply_records(enumerate(records, self.image.end_offset)))


def allocate_producer_id(writer: MetadataWriter) -> "asyncio.Task[int]":
    """Starts a decision that allocates the next producer id."""

    def plan() -> tuple[list[MetadataRecord], int]:
        producer_id = writer.image.next_producer_id
        return [ProducerIdsRecord(producer_id + 1)], producer_id

    return asyncio.ensure_future(writer.execute(plan))


@async_test
async def test_a_decision_waits_for_the_commit_of_a_cancelled_one() -> None:
    log = SlowLog()
    writer = MetadataWriter(log.image, log, Config.of({"log.dirs": "/nowhere", "node.id": "1"}))
    cancelled, second = allocate_producer_id(writer), allocate_producer_id(writer)
    await run_event_loop()
    cancelled.cancel()
    await run_event_loop()
    assert len(log.pending_commits) == 1, "the second would be decided on an image without the pending commit"
    log.complete_commit()
    await run_event_loop()
    log.complete_commit()
    assert await second == 1
    assert cancelled.cancelled()


@async_test
async def test_a_decision_cancelled_before_it_begins_commits_nothing() -> None:
    log = SlowLog()
    writer = MetadataWriter(log.image, log, Config.of({"log.dirs": "/nowhere", "node.id": "1"}))
    first, cancelled, third = (allocate_producer_id(writer) for _ in range(3))
    await run_event_loop()
    cancelled.cancel()
    log.complete_commit()
    await run_event_loop()
    log.complete_commit()
    assert [await first, await third] == [0, 1]


@async_test
async def test_a_failed_commit_is_raised_and_the_next_decision_continues() -> None:
    log = SlowLog()
    writer = MetadataWriter(log.image, log, Config.of({"log.dirs": "/nowhere", "node.id": "1"}))
    failing, second = allocate_producer_id(writer), allocate_producer_id(writer)
    await run_event_loop()
    log.pending_commits.pop(0)[1].set_exception(KafkaError(ErrorCode.kafka_storage_error, "the disk is full"))
    with pytest.raises(KafkaError, match="the disk is full"):
        await failing
    await run_event_loop()
    log.complete_commit()
    assert await second == 0
