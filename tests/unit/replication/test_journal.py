"""A coordinator's journal on a replicated partition. It is valid for one leader epoch."""

import asyncio
from pathlib import Path

import pytest

from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.kafka_errors import error_of
from tests.unit.replication.leader_partition import BATCH, FakeClusterView, create_leader, record_fetch, update_metadata


@async_test
async def test_journal_is_read_when_earlier_records_are_known_to_be_replicated(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), records=3)
    journal = PartitionJournal(partition)
    recovered = asyncio.ensure_future(journal.wait_until_recovered())
    record_fetch(partition, 2, 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not recovered.done()
    record_fetch(partition, 2, 3)
    await recovered
    assert [header.base_offset for chunk in journal.read() for _, header in iter_batches(chunk)] == [0, 1, 2]
    assert not partition.read_waiters.waiting


@async_test
async def test_journal_is_invalid_after_a_new_leader_epoch(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), records=3)
    journal = PartitionJournal(partition)
    waiting = asyncio.ensure_future(journal.wait_until_recovered())
    await asyncio.sleep(0)
    update_metadata(partition, leader=1, leader_epoch=2)  # the same leader, which may have lost records in between
    assert await error_of(waiting) is ErrorCode.not_leader_or_follower
    with pytest.raises(KafkaError) as raised:
        journal.append(BATCH)
    assert raised.value.code is ErrorCode.not_leader_or_follower
    assert partition.log.end == 3
    appended = asyncio.ensure_future(PartitionJournal(partition).append(BATCH))
    await asyncio.sleep(0)
    record_fetch(partition, 2, 4)
    assert await appended == 3
