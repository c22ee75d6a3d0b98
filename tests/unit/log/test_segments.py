"""When a log rolls, what its indexes have, look-ups by timestamp, and syncs."""

import asyncio

import pytest

from ottla_broker.log.config import MAX_INT32, LogConfig
from ottla_broker.log.flush import is_checkpointed
from ottla_broker.log.indexes import TimestampOffset
from ottla_broker.log.partition_log import PartitionLog
from tests.unit.log.log_fixtures import NOW, FailingDisk, LogFolder, append_committed, batch


def check_indexes(log: PartitionLog) -> None:
    """Each offset index entry is a batch's last offset and position. Time index entries rise, and
    each has the largest timestamp up to its offset."""
    for segment in log.segments:
        found = {header.last_offset: (position, header) for position, header in segment.iter_headers()}
        entries = segment.offsets.entries()
        assert entries == sorted(set(entries))
        assert all(found[offset][0] == position for offset, position in entries)
        times = segment.times.entries()
        assert [t.timestamp for t in times] == sorted({t.timestamp for t in times})
        assert [t.offset for t in times] == sorted({t.offset for t in times})
        for entry in times:
            assert found[entry.offset][1].max_timestamp == entry.timestamp
            assert all(h.max_timestamp <= entry.timestamp for o, (_, h) in found.items() if o <= entry.offset)


def test_log_rolls_by_size(folder: LogFolder) -> None:
    data = batch(1, size=100)
    folder.config = LogConfig(segment_bytes=3 * len(data))
    log = folder.create()
    for _ in range(7):
        append_committed(log, data)
    assert list(log.segments.bases) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * len(data), 3 * len(data), len(data)]
    assert log.size == 7 * len(data)


def test_rolls_by_record_timestamps(folder: LogFolder) -> None:
    folder.config = LogConfig(segment_ms=1_000)
    log = folder.create()
    for later in (0, 500, 1_000, 1_001, 900, 2_002):
        append_committed(log, batch(1, timestamp=NOW + later))
    assert list(log.segments.bases) == [0, 3, 5]


def test_rolls_by_wall_time_if_records_have_no_timestamps(folder: LogFolder) -> None:
    folder.config = LogConfig(segment_ms=1_000)
    log = folder.create()
    append_committed(log, batch(1, timestamp=-1))
    folder.clock.now_ms += 1_001
    append_committed(log, batch(1, timestamp=-1))
    assert list(log.segments.bases) == [0, 1]


def test_rolls_when_an_index_is_full(folder: LogFolder) -> None:
    folder.config = LogConfig(index_interval_bytes=0, segment_index_bytes=36)
    log = folder.create()
    for n in range(30):
        append_committed(log, batch(1, timestamp=NOW + n))
    assert len(log.segments) > 5
    assert all(len(segment.times) * 12 <= 36 and len(segment.offsets) * 8 <= 36 for segment in log.segments)
    check_indexes(log)


def test_rolls_before_relative_offsets_exceed_31_bits(folder: LogFolder) -> None:
    log = folder.create()
    log.append_as_follower(batch(1, base_offset=5, epoch=0), leader_epoch=0)
    log.append_as_follower(batch(1, base_offset=1 + MAX_INT32, epoch=0), leader_epoch=0)
    # No gap between the segments, as the relative offset of the batch fits.
    assert list(log.segments.bases) == [0, 6]
    log.append_as_follower(batch(1, base_offset=3 + 2 * MAX_INT32, epoch=0), leader_epoch=0)
    assert list(log.segments.bases) == [0, 6, 3 + 2 * MAX_INT32]


def test_empty_active_segment_is_not_rolled(folder: LogFolder) -> None:
    log = folder.create()
    log.roll()
    assert list(log.segments.bases) == [0]
    append_committed(log, batch(1))
    log.roll()
    log.roll()
    assert list(log.segments.bases) == [0, 1]


def test_each_new_segment_starts_with_a_snapshot(folder: LogFolder) -> None:
    folder.config = LogConfig(segment_bytes=300)
    log = folder.create()
    for n in range(6):
        append_committed(log, batch(1, producer=(3, 0, n)))
    assert log.snapshots.offsets == list(log.segments.bases)[1:]


@pytest.mark.parametrize("interval", [0, 1, 100, 4096])
def test_indexes_are_sound_for_any_timestamps(folder: LogFolder, interval: int) -> None:
    folder.config = LogConfig(segment_bytes=3_000, index_interval_bytes=interval)
    log = folder.create()
    for n in range(100):
        append_committed(log, batch(1 + n % 3, timestamp=NOW + (n * 7919) % 1_000, size=20))
    check_indexes(log)
    # The last entry of a closed segment has its largest timestamp.
    for segment in list(log.segments)[:-1]:
        assert segment.times.last().timestamp == max(h.max_timestamp for _, h in segment.iter_headers())


def test_offset_for_timestamp_is_that_of_the_first_record_at_or_after_it(folder: LogFolder) -> None:
    folder.config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log = folder.create()
    assert log.offset_for_timestamp(0) is None and log.offset_of_max_timestamp() is None
    for n in range(40):
        append_committed(log, batch(3, timestamp=NOW + 100 * n, step_ms=10), epoch=n // 20)
    assert log.offset_for_timestamp(0) == TimestampOffset(NOW, 0, 0)
    assert log.offset_for_timestamp(NOW + 101) == TimestampOffset(NOW + 110, 4, 0)
    assert log.offset_for_timestamp(NOW + 3_020) == TimestampOffset(NOW + 3_020, 92, 1)
    assert log.offset_for_timestamp(NOW + 3_021) == TimestampOffset(NOW + 3_100, 93, 1)
    assert log.offset_for_timestamp(NOW + 3_921) is None
    assert log.offset_of_max_timestamp() == TimestampOffset(NOW + 3_920, 119, 1)
    log.delete_records_before(50)
    assert log.offset_for_timestamp(0) == TimestampOffset(NOW + 1_620, 50, 0)


def test_offset_for_timestamp_is_the_first_at_or_after_it_where_timestamps_decrease(folder: LogFolder) -> None:
    folder.config = LogConfig(index_interval_bytes=0)
    log = folder.create()
    for timestamp in (50, 10, 70, 20, 70, 60):
        append_committed(log, batch(1, timestamp=NOW + timestamp))
    assert log.offset_for_timestamp(NOW + 51) == TimestampOffset(NOW + 70, 2, 0)
    assert log.offset_of_max_timestamp() == TimestampOffset(NOW + 70, 2, 0)


def test_offset_of_max_timestamp_is_that_of_an_existing_record(folder: LogFolder) -> None:
    folder.config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log = folder.create()
    for timestamp in (90, 50, 10, 70, 20, 70, 60, 40, 30):
        append_committed(log, batch(3, timestamp=NOW + timestamp, size=30))
    assert len(log.segments) > 2
    seen = []
    for start in range(log.end):
        log.delete_records_before(start)
        found = log.offset_of_max_timestamp()
        assert found is not None
        seen.append((found.timestamp - NOW, found.offset))
    assert seen[0] == (90, 0) and seen[2] == (90, 2) and seen[3] == seen[9] == (70, 9)
    assert seen[12] == (70, 15) and seen[18:24] == [(60, 18), (60, 19), (60, 20), (40, 21), (40, 22), (40, 23)]
    log.delete_records_before(log.end)
    assert log.offset_of_max_timestamp() is None


class TestDurability:
    def test_rule_17_waiting_acks_share_one_fsync(self, failing_folder: LogFolder) -> None:
        log = failing_folder.create()
        disk = failing_folder.disk

        async def many() -> None:
            append_committed(log, batch(1))
            first = asyncio.ensure_future(log.wait_until_synced(log.end))
            # Its fsync has begun; later waits share the next one.
            await asyncio.sleep(0)
            waiting = []
            for _ in range(50):
                append_committed(log, batch(1))
                waiting.append(asyncio.ensure_future(log.wait_until_synced(log.end)))
            await asyncio.gather(first, *waiting)

        asyncio.run(many())
        assert log.flush.flushed_offset == 51
        assert isinstance(disk, FailingDisk)
        assert disk.synced.count(log.segments.active.path) <= 2

    def test_flush_messages_decides_when_acks_wait(self, folder: LogFolder) -> None:
        folder.config = LogConfig(flush_messages=3)
        log = folder.create()
        append_committed(log, batch(2))
        assert not log.is_sync_due
        append_committed(log, batch(1))
        assert log.is_sync_due
        asyncio.run(log.wait_until_synced(log.end))
        assert not log.is_sync_due

    def test_checkpoint_advances_the_recovery_point(self, folder: LogFolder) -> None:
        folder.config = LogConfig(segment_bytes=300)
        log = folder.create()
        for n in range(9):
            append_committed(log, batch(1, producer=(4, 0, n)), epoch=n // 5)
        asyncio.run(log.checkpoint())
        assert log.recovery_point == log.end and is_checkpointed(log)
        append_committed(log, batch(1, producer=(4, 0, 9)))
        assert log.recovery_point == 9 and not is_checkpointed(log)
        asyncio.run(log.checkpoint())
        assert [o for o in log.snapshots.offsets if o not in log.segments.bases] == [10]

    def test_sync_begun_before_a_truncation_proves_nothing(self, folder: LogFolder) -> None:
        log = folder.create()
        for _ in range(5):
            append_committed(log, batch(1))

        async def race() -> None:
            running = asyncio.ensure_future(log.wait_until_synced(5))
            await asyncio.sleep(0)
            log.truncate_to(2)
            for _ in range(3):
                append_committed(log, batch(1, size=500), epoch=1)
            assert log.flush.flushed_offset <= 2
            await running

        asyncio.run(race())
        assert log.flush.flushed_offset == 5

    def test_wait_for_truncated_records_ends(self, folder: LogFolder) -> None:
        log = folder.create()
        for _ in range(5):
            append_committed(log, batch(1))

        async def race() -> None:
            running = asyncio.ensure_future(log.wait_until_synced(5))
            await asyncio.sleep(0)
            log.truncate_to(2)
            await asyncio.wait_for(running, 10)

        asyncio.run(race())
        assert log.flush.flushed_offset == 2

    def test_failing_fsync_takes_the_partition_offline(self, failing_folder: LogFolder) -> None:
        from ottla_broker.wire.errors import ErrorCode, KafkaError

        log = failing_folder.create()
        append_committed(log, batch(1))
        failing_folder.disk.broken = {".log"}  # type: ignore[attr-defined]
        with pytest.raises(KafkaError) as caught:
            asyncio.run(log.wait_until_synced(1))
        assert caught.value.code is ErrorCode.kafka_storage_error
        assert log.failure is not None
