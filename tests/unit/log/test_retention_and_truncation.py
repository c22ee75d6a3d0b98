"""Retention, DeleteRecords, truncation and full disks of a log."""

from pathlib import Path

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.recovery import LogCheckpoint
from ottla_broker.log.retention import take_files_to_delete
from ottla_broker.log.segment import Segment
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.log_fixtures import NOW, FailingDisk, LogFolder, append_committed, batch, offsets


def names(folder: LogFolder) -> list[str]:
    return sorted(path.name for path in Path(folder.directory).glob("*.log*"))


class TestRetention:
    def test_retention_ms_deletes_whole_segments_oldest_first(self, folder: LogFolder) -> None:
        folder.config = LogConfig(segment_bytes=200, retention_ms=1_000)
        log = folder.create()
        for n in range(10):
            append_committed(log, batch(1, size=50, timestamp=NOW + 100 * n))
        assert log.apply_retention(NOW + 1_000) == 0
        assert log.apply_retention(NOW + 1_250) == 3
        assert log.start == log.segments[0].base
        assert log.apply_retention(NOW + 1_250) == 0

    def test_retention_ms_deletes_the_active_segment_too(self, folder: LogFolder) -> None:
        folder.config = LogConfig(retention_ms=1_000)
        log = folder.create()
        append_committed(log, batch(4))
        assert log.apply_retention(NOW + 1_001) == 1
        assert (log.start, log.end, log.size) == (4, 4, 0)
        assert append_committed(log, batch(1)) == (4, 4)

    def test_retention_keeps_records_above_the_high_watermark(self, folder: LogFolder) -> None:
        folder.config = LogConfig(segment_bytes=140, retention_ms=0)
        log = folder.create()
        for _ in range(4):
            log.append_as_leader(batch(1, size=50), leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(2)
        assert log.apply_retention(NOW + 9_999) == 2
        assert log.start == 2

    def test_retention_ms_uses_the_files_age_if_records_have_no_timestamps(self, folder: LogFolder) -> None:
        folder.config = LogConfig(retention_ms=1_000)
        log = folder.create()
        append_committed(log, batch(1, timestamp=-1))
        modified = Path(log.segments.active.path).stat().st_mtime_ns // 1_000_000
        assert log.apply_retention(modified + 1_000) == 0
        assert log.apply_retention(modified + 1_001) == 1

    def test_retention_bytes_deletes_the_oldest_segments(self, folder: LogFolder) -> None:
        size = len(batch(1, size=50))
        folder.config = LogConfig(segment_bytes=2 * size, retention_bytes=5 * size, retention_ms=-1)
        log = folder.create()
        for _ in range(10):
            append_committed(log, batch(1, size=50))
        assert log.apply_retention(NOW) == 2
        assert (log.start, log.size) == (4, 6 * size)

    def test_compacted_topic_keeps_its_segments(self, folder: LogFolder) -> None:
        folder.config = LogConfig(segment_bytes=140, retention_ms=0, cleanup_delete=False, cleanup_compact=True)
        log = folder.create()
        for _ in range(4):
            append_committed(log, batch(1, size=50))
        assert log.apply_retention(NOW + 9_999) == 0

    def test_files_are_removed_after_file_delete_delay_ms(self, folder: LogFolder) -> None:
        folder.config = LogConfig(segment_bytes=140, retention_ms=0, file_delete_delay_ms=500)
        log = folder.create()
        for n in range(3):
            append_committed(log, batch(1, size=50, producer=(1, 0, n)))
        log.apply_retention(NOW + 1)
        assert names(folder)[0].endswith(".log.deleted")
        assert take_files_to_delete(log, NOW + 500) == []
        due = take_files_to_delete(log, NOW + 501)
        assert {Path(path).suffixes[0] for path in due} >= {".log", ".index", ".timeindex", ".snapshot"}
        assert log.files_to_delete == []

    def test_delete_records_advances_the_log_start(self, folder: LogFolder) -> None:
        folder.config = LogConfig(segment_bytes=200, index_interval_bytes=1)
        log = folder.create()
        for n in range(10):
            append_committed(log, batch(2, size=20), epoch=n // 3)
        assert log.delete_records_before(7) == 7
        assert log.delete_records_before(3) == 7
        assert log.epochs.entries()[0] == (1, 7)
        log.apply_retention(NOW)
        assert log.segments[0].base <= 7 < log.segments[1].base
        assert offsets(log)[0] == 6
        with pytest.raises(KafkaError) as caught:
            log.delete_records_before(21)
        assert caught.value.code is ErrorCode.offset_out_of_range
        again = folder.reopen(LogCheckpoint(start=7))
        assert (again.start, again.end) == (7, 20)

    def test_delete_records_up_to_the_end_empties_the_log(self, folder: LogFolder) -> None:
        log = folder.create()
        append_committed(log, batch(5))
        log.delete_records_before(5)
        assert offsets(log) == []
        assert append_committed(log, batch(1)) == (5, 5)
        assert folder.reopen(LogCheckpoint(start=5)).start == 5


class TestTruncation:
    @pytest.mark.parametrize("to", [0, 1, 2, 7, 10, 11, 29, 30, 99])
    def test_log_is_truncated_to_any_offset(self, folder: LogFolder, to: int) -> None:
        folder.config = LogConfig(segment_bytes=300, index_interval_bytes=50)
        log = folder.create()
        for n in range(10):
            append_committed(log, batch(3, size=20), epoch=n)
        log.truncate_to(to)
        # The batch that holds the offset is removed whole.
        assert log.end == min(to - to % 3, 30)
        assert log.high_watermark <= log.end
        assert offsets(log) == list(range(log.end))
        assert all(start < log.end for _, start in log.epochs.entries())
        append_committed(log, batch(2), epoch=20)
        assert offsets(log) == list(range(log.end))
        assert offsets(folder.reopen()) == list(range(log.end))

    def test_truncation_in_a_hole_ends_at_the_requested_offset(self, folder: LogFolder) -> None:
        log = folder.create()
        log.append_as_follower(batch(1, base_offset=0, epoch=0) + batch(1, base_offset=10, epoch=0), leader_epoch=0)
        log.truncate_to(5)
        assert log.end == 5

    def test_fully_truncated_log_starts_at_the_given_offset(self, folder: LogFolder) -> None:
        log = folder.create()
        append_committed(log, batch(5, producer=(1, 0, 0), transactional=True))
        log.truncate_fully_and_start_at(100)
        assert (log.start, log.end, log.high_watermark, log.last_stable_offset) == (100, 100, 100, 100)
        assert log.epochs.entries() == [] and len(log.producers) == 0
        assert names(folder) == [f"{100:020d}.log"]
        done = log.append_as_follower(batch(1, base_offset=100, epoch=3), leader_epoch=3)
        assert done.first_offset == 100


class TestFullDisk:
    def test_appends_fail_reads_work_and_appends_work_again(self, failing_folder: LogFolder) -> None:
        disk = failing_folder.disk
        assert isinstance(disk, FailingDisk)
        log = failing_folder.create()
        for _ in range(3):
            append_committed(log, batch(1))
        disk.room = 30
        for _ in range(3):
            with pytest.raises(KafkaError) as caught:
                append_committed(log, batch(1))
            assert caught.value.code is ErrorCode.kafka_storage_error
            assert "No space" in str(caught.value)
        assert log.failure is None
        assert offsets(log) == [0, 1, 2]
        disk.room = None
        assert append_committed(log, batch(1)) == (3, 3)
        assert offsets(log) == [0, 1, 2, 3]
        log.clear_tail_cache()
        assert offsets(log) == [0, 1, 2, 3]

    def test_appends_work_after_a_roll_that_failed(self, failing_folder: LogFolder) -> None:
        disk = failing_folder.disk
        assert isinstance(disk, FailingDisk)
        failing_folder.config = LogConfig(segment_bytes=300, index_interval_bytes=10)
        log = failing_folder.create()
        for room in (0, 1, 20, 40, 100):
            while log.segments.active.size + len(batch(1)) <= 300:
                append_committed(log, batch(1))
            disk.room = room
            with pytest.raises(KafkaError):
                append_committed(log, batch(1))
            disk.room = None
            append_committed(log, batch(1))
        assert offsets(log) == list(range(log.end))
        again = failing_folder.reopen()
        assert (again.end, again.failure) == (log.end, None)

    def test_failed_append_of_a_follower_restores_leader_epochs(self, failing_folder: LogFolder) -> None:
        """The next fetch may bring records of the old leader only."""
        disk = failing_folder.disk
        assert isinstance(disk, FailingDisk)
        log = failing_folder.create()
        log.append_as_follower(batch(2, base_offset=0, epoch=0), leader_epoch=0)
        log.append_as_follower(batch(2, base_offset=2, epoch=1), leader_epoch=1)
        before = log.epochs.entries()
        disk.room = 0
        with pytest.raises(KafkaError):
            log.append_as_follower(batch(1, base_offset=4, epoch=1) + batch(1, base_offset=5, epoch=2), leader_epoch=2)
        assert log.epochs.entries() == before == [(0, 0), (1, 2)]
        disk.room = None
        log.append_as_follower(batch(1, base_offset=4, epoch=1), leader_epoch=2)
        assert log.epochs.entries() == before

    @pytest.mark.parametrize("room", [0, 1, 20, 40, 100])
    @pytest.mark.parametrize("clean", [True, False])
    def test_failed_roll_leaves_no_segment_among_later_offsets(
        self, failing_folder: LogFolder, room: int, clean: bool
    ) -> None:
        """The batch that needed a new segment is rejected; smaller ones go to the old one."""
        disk = failing_folder.disk
        assert isinstance(disk, FailingDisk)
        failing_folder.config = LogConfig(segment_bytes=500, index_interval_bytes=10)
        log = failing_folder.create()
        for _ in range(3):
            append_committed(log, batch(1))
        disk.room = room
        with pytest.raises(KafkaError):
            append_committed(log, batch(1, size=300))
        disk.room = None
        for _ in range(20):
            append_committed(log, batch(1))
        again = failing_folder.reopen(LogCheckpoint(clean=clean))
        assert (again.end, again.failure) == (log.end, None)
        assert offsets(again) == list(range(log.end))

    def test_failed_roll_leaves_nothing_that_recovery_could_take_for_the_end(self, failing_folder: LogFolder) -> None:
        disk = failing_folder.disk
        assert isinstance(disk, FailingDisk)
        log = failing_folder.create()
        append_committed(log, batch(1))
        disk.room = 0
        with pytest.raises(KafkaError):
            log.roll()
        disk.room = None
        append_committed(log, batch(1))
        log.roll()
        append_committed(log, batch(1))
        again = failing_folder.reopen()
        assert (again.end, again.failure) == (3, None)
        assert offsets(again) == [0, 1, 2]

    def test_failed_roll_of_a_corrupt_segment_leaves_it_the_last_one(
        self, folder: LogFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def seal(segment: Segment) -> None:
            raise CorruptSegment(segment.path, 0, "batch length 0")

        log = folder.create()
        append_committed(log, batch(1))
        monkeypatch.setattr(Segment, "seal", seal)
        with pytest.raises(KafkaError, match="batch length 0"):
            log.roll()
        assert names(folder) == [f"{0:020d}.log"]

    def test_other_disk_errors_take_the_partition_offline(self, failing_folder: LogFolder) -> None:
        disk = failing_folder.disk
        assert isinstance(disk, FailingDisk)
        log = failing_folder.create()
        append_committed(log, batch(1))
        disk.broken = {".log"}
        with pytest.raises(KafkaError, match=r"\.log"):
            append_committed(log, batch(1))
        disk.broken = set()
        assert log.failure is not None
        with pytest.raises(KafkaError):
            log.read(0, 1, up_to=1)
