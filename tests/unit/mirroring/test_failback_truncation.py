"""Diverged records are saved, and truncated by a leader before a follower fetches from it."""

from pathlib import Path

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.recovery import LogCheckpoint, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.mirroring.failback_truncation import (
    FOLDER,
    diverged_folder,
    is_saved,
    is_truncated,
    save_diverged_records,
    truncate_if_saved,
)
from ottla_broker.replication.partition_follower import last_record_epoch, truncate_diverging
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import iter_records
from tests.unit.async_tests import async_test
from tests.unit.log.log_fixtures import NOW, batch
from tests.unit.replication.leader_partition import (
    BATCH,
    TOPIC,
    FakeClusterView,
    create_leader,
    record_fetch,
    update_metadata,
)


@async_test
async def test_truncating_leader_ignores_the_followers_old_log_ends(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2), records=10)
    record_fetch(partition, 2, 10)
    log = partition.log
    assert log.high_watermark == 10 and not is_truncated(log, 6, 1)
    waiting = partition.commit_future(partition.append_records(BATCH, acks=-1))
    assert waiting is not None
    update_metadata(partition, leader_epoch=2)
    partition.truncate_as_leader(6)
    assert (log.end, log.high_watermark, partition.leader.epoch_start_offset, partition.has_reached_epoch_start) == (
        6,
        6,
        6,
        True,
    )
    assert is_truncated(log, 6, 1)
    with pytest.raises(KafkaError):
        await waiting  # otherwise the source's record at that offset would acknowledge it
    partition.append_mirrored_records(bytearray(batch(3, base_offset=6, epoch=2)))
    assert log.high_watermark == 6, "the follower has other records at these offsets"
    follower = create_leader(tmp_path / "follower", FakeClusterView(), records=11).log
    assert (last_record_epoch(follower), follower.end) == (0, 11)
    epoch, end = log.epochs.end_offset_for(last_record_epoch(follower), log.end)
    truncate_diverging(follower, epoch, end)
    assert follower.end == 6
    record_fetch(partition, 2, 6)
    assert log.high_watermark == 6
    record_fetch(partition, 2, 9)
    assert log.high_watermark == 9
    assert is_truncated(log, 6, 1), "records that were mirrored since then stay"


def test_log_is_truncated_if_it_starts_later_or_has_only_newer_records(tmp_path: Path) -> None:
    log = create_leader(tmp_path, FakeClusterView(), isr=(1,), records=10).log
    assert is_truncated(log, 10, 1) and not is_truncated(log, 9, 1)
    assert is_truncated(log, 5, -1), "records of newer epochs are the source's"
    log.append_as_leader(BATCH, leader_epoch=5, now_ms=1)
    assert is_truncated(log, 10, 4) and not is_truncated(log, 10, 5) and not is_truncated(log, 7, 4)
    log.advance_high_watermark(11)
    log.delete_records_before(10)
    log.epochs.truncate_from_start(10)
    assert is_truncated(log, 7, 4), "the older records were deleted from the log start"
    log.truncate_fully_and_start_at(50)
    assert is_truncated(log, 7, 4)


@async_test
async def test_saved_records_are_complete_and_a_valid_segment(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1,), segment_bytes=400)
    log = partition.log
    for number in range(30):
        log.append_as_leader(batch(2, size=20 + number), leader_epoch=1, now_ms=NOW)
    before = bytes(log.read(20, 1 << 20, up_to=log.end))
    unfinished = Path(f"{diverged_folder(log, 20, 1)}.unfinished")
    log.storage.disk.make_directory(str(unfinished))
    log.storage.disk.replace_file(f"{unfinished}/{0:020d}.log", b"of an attempt that a crash has ended")
    assert not is_saved(log, 20, 1)
    folder = Path(await save_diverged_records(log, 20, 1))
    assert is_saved(log, 20, 1) and not is_saved(log, 20, 2) and not is_saved(log, 18, 1)
    assert folder.parent.name == FOLDER and log.storage.disk.list(str(folder)) == [f"{20:020d}.log"]
    content = log.storage.disk.read_file(f"{folder}/{20:020d}.log")
    assert content.startswith(before[:400])
    headers = [header for header, _ in iter_records(content)]
    assert headers[0].base_offset == 20 and headers[-1].last_offset == 59 and len(headers) == 40
    assert log.storage.disk.list(str(folder.parent)) == [folder.name]
    assert await save_diverged_records(log, 20, 1) == str(folder), "they are saved once"
    log.close()
    again = open_log(Storage(OsDisk(), Runtime()), log.directory, "t", 0, LogConfig(), LogCheckpoint())
    assert (again.failure, again.end, again.topic_id) == (None, 60, TOPIC), "recovery ignores the folder"


@async_test
async def test_log_that_starts_above_the_join_offset_is_saved_from_its_start(tmp_path: Path) -> None:
    """The source never had the deleted records, so the logs share nothing, and all records are
    truncated.
    """
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1,), records=10)
    log = partition.log
    log.delete_records_before(7)
    folder = Path(await save_diverged_records(log, 4, 1))
    assert folder.name == "offsets-7-9-epoch-1" and is_saved(log, 4, 1)
    update_metadata(partition, leader_epoch=2)
    truncate_if_saved(partition, 4, 1)
    assert (log.start, log.end) == (4, 4) and is_truncated(log, 4, 1)
    partition.append_mirrored_records(bytearray(batch(3, base_offset=4, epoch=2)))
    assert is_truncated(log, 4, 1) and (log.start, log.end) == (4, 7)


@async_test
async def test_empty_log_continues_at_the_join_offset(tmp_path: Path) -> None:
    """The old source was down for longer than its retention. The records that the other cluster
    wrote after the failover begin at a lower offset than the old source's log.
    """
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1,), records=10)
    partition.log.delete_records_before(10)
    update_metadata(partition, leader_epoch=2)
    truncate_if_saved(partition, 6, 1)
    log = partition.log
    assert (log.start, log.end, log.high_watermark) == (6, 6, 6) and is_truncated(log, 6, 1)
    partition.append_mirrored_records(bytearray(batch(3, base_offset=6, epoch=2)))
    update_metadata(partition, leader_epoch=3)
    truncate_if_saved(partition, 6, 1)
    assert (log.start, log.end) == (6, 9), "mirrored records stay"
