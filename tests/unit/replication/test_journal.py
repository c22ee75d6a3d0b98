"""A coordinator's journal on a replicated partition: read when its leader has settled, and good for one epoch."""

import asyncio
from pathlib import Path

from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode
from tests.unit.replication.leading import BATCH, Peers, committed, fetch, led
from tests.unit.replication.small_cluster import failure
from tests.unit.replication.test_leading import on_a_loop


@on_a_loop
async def test_a_coordinator_reads_when_all_that_was_acknowledged_is_known_to_be_replicated(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2), records=3)
    journal = PartitionJournal(partition)
    settled = asyncio.ensure_future(journal.wait_until_recovered())
    fetch(partition, 2, 2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not settled.done()
    fetch(partition, 2, 3)
    await settled
    assert [header.base_offset for chunk in journal.read() for _, header in iter_batches(chunk)] == [0, 1, 2]
    assert not partition.read_waiters.waiting


@on_a_loop
async def test_a_journal_is_good_for_the_epoch_in_which_it_was_made(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2), records=3)
    journal = PartitionJournal(partition)
    waiting = asyncio.ensure_future(journal.wait_until_recovered())
    await asyncio.sleep(0)
    committed(partition, leader=1, leader_epoch=2)  # led again, and all was lost in between for what it knows
    assert await failure(waiting) is ErrorCode.not_leader_or_follower
    assert await failure(journal.append(BATCH)) is ErrorCode.not_leader_or_follower
    assert partition.log.end == 3
    appended = asyncio.ensure_future(PartitionJournal(partition).append(BATCH))
    await asyncio.sleep(0)
    fetch(partition, 2, 4)
    assert await appended == 3
