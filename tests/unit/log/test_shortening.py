"""What a log lets go (retention, DeleteRecords), what is cut off (truncation), and what a full disk does."""

from pathlib import Path

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.recovery import LogCheckpoint
from ottla_broker.log.retention import take_files_to_delete
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.making import NOW, FailingDisk, Place, batch, lead, offsets


def names(place: Place) -> list[str]:
    return sorted(path.name for path in Path(place.directory).glob("*.log*"))


class TestRetention:
    def test_by_time_whole_segments_go_oldest_first(self, place: Place) -> None:
        place.config = LogConfig(segment_bytes=200, retention_ms=1_000)
        log = place.create()
        for n in range(10):
            lead(log, batch(1, size=50, timestamp=NOW + 100 * n))
        assert log.apply_retention(NOW + 1_000) == 0
        assert log.apply_retention(NOW + 1_250) == 3
        assert log.start == log.segments[0].base
        assert log.apply_retention(NOW + 1_250) == 0

    def test_by_time_the_active_segment_goes_too(self, place: Place) -> None:
        place.config = LogConfig(retention_ms=1_000)
        log = place.create()
        lead(log, batch(4))
        assert log.apply_retention(NOW + 1_001) == 1
        assert (log.start, log.end, log.size) == (4, 4, 0)
        assert lead(log, batch(1)) == (4, 4)

    def test_nothing_above_the_high_watermark(self, place: Place) -> None:
        place.config = LogConfig(segment_bytes=140, retention_ms=0)
        log = place.create()
        for _ in range(4):
            log.append_as_leader(batch(1, size=50), leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(2)
        assert log.apply_retention(NOW + 9_999) == 2
        assert log.start == 2

    def test_without_timestamps_the_files_age_counts(self, place: Place) -> None:
        place.config = LogConfig(retention_ms=1_000)
        log = place.create()
        lead(log, batch(1, timestamp=-1))
        modified = Path(log.segments.active.path).stat().st_mtime_ns // 1_000_000
        assert log.apply_retention(modified + 1_000) == 0
        assert log.apply_retention(modified + 1_001) == 1

    def test_by_size(self, place: Place) -> None:
        size = len(batch(1, size=50))
        place.config = LogConfig(segment_bytes=2 * size, retention_bytes=5 * size, retention_ms=-1)
        log = place.create()
        for _ in range(10):
            lead(log, batch(1, size=50))
        assert log.apply_retention(NOW) == 2
        assert (log.start, log.size) == (4, 6 * size)

    def test_a_compacted_topic_keeps_its_segments(self, place: Place) -> None:
        place.config = LogConfig(segment_bytes=140, retention_ms=0, cleanup_delete=False, cleanup_compact=True)
        log = place.create()
        for _ in range(4):
            lead(log, batch(1, size=50))
        assert log.apply_retention(NOW + 9_999) == 0

    def test_files_go_after_their_delay(self, place: Place) -> None:
        place.config = LogConfig(segment_bytes=140, retention_ms=0, file_delete_delay_ms=500)
        log = place.create()
        for n in range(3):
            lead(log, batch(1, size=50, producer=(1, 0, n)))
        log.apply_retention(NOW + 1)
        assert names(place)[0].endswith(".log.deleted")
        assert take_files_to_delete(log, NOW + 500) == []
        due = take_files_to_delete(log, NOW + 501)
        assert {Path(path).suffixes[0] for path in due} >= {".log", ".index", ".timeindex", ".snapshot"}
        assert log.files_to_delete == []

    def test_delete_records(self, place: Place) -> None:
        place.config = LogConfig(segment_bytes=200, index_interval_bytes=1)
        log = place.create()
        for n in range(10):
            lead(log, batch(2, size=20), epoch=n // 3)
        assert log.delete_records_before(7) == 7
        assert log.delete_records_before(3) == 7
        assert log.epochs.entries()[0] == (1, 7)
        log.apply_retention(NOW)
        assert log.segments[0].base <= 7 < log.segments[1].base
        assert offsets(log)[0] == 6
        with pytest.raises(KafkaError) as caught:
            log.delete_records_before(21)
        assert caught.value.code is ErrorCode.offset_out_of_range
        again = place.reopen(LogCheckpoint(start=7))
        assert (again.start, again.end) == (7, 20)

    def test_delete_records_up_to_the_end(self, place: Place) -> None:
        log = place.create()
        lead(log, batch(5))
        log.delete_records_before(5)
        assert offsets(log) == []
        assert lead(log, batch(1)) == (5, 5)
        assert place.reopen(LogCheckpoint(start=5)).start == 5


class TestTruncation:
    @pytest.mark.parametrize("to", [0, 1, 2, 7, 10, 11, 29, 30, 99])
    def test_to_any_offset(self, place: Place, to: int) -> None:
        place.config = LogConfig(segment_bytes=300, index_interval_bytes=50)
        log = place.create()
        for n in range(10):
            lead(log, batch(3, size=20), epoch=n)
        log.truncate_to(to)
        assert log.end == min(to - to % 3, 30)  # a batch that holds the offset goes whole
        assert log.high_watermark <= log.end
        assert offsets(log) == list(range(log.end))
        assert all(start < log.end for _, start in log.epochs.entries())
        lead(log, batch(2), epoch=20)
        assert offsets(log) == list(range(log.end))
        assert offsets(place.reopen()) == list(range(log.end))

    def test_into_a_hole_the_end_is_what_was_asked(self, place: Place) -> None:
        log = place.create()
        log.append_as_follower(batch(1, base_offset=0, epoch=0) + batch(1, base_offset=10, epoch=0), leader_epoch=0)
        log.truncate_to(5)
        assert log.end == 5

    def test_fully(self, place: Place) -> None:
        log = place.create()
        lead(log, batch(5, producer=(1, 0, 0), transactional=True))
        log.truncate_fully_and_start_at(100)
        assert (log.start, log.end, log.high_watermark, log.last_stable_offset) == (100, 100, 100, 100)
        assert log.epochs.entries() == [] and len(log.producers) == 0
        assert names(place) == [f"{100:020d}.log"]
        done = log.append_as_follower(batch(1, base_offset=100, epoch=3), leader_epoch=3)
        assert done.first_offset == 100


class TestFullDisk:
    def test_refuses_keeps_reads_and_heals(self, failing: Place) -> None:
        disk = failing.disk
        assert isinstance(disk, FailingDisk)
        log = failing.create()
        for _ in range(3):
            lead(log, batch(1))
        disk.room = 30
        for _ in range(3):
            with pytest.raises(KafkaError) as caught:
                lead(log, batch(1))
            assert caught.value.code is ErrorCode.kafka_storage_error
            assert "No space" in str(caught.value)
        assert log.failure is None
        assert offsets(log) == [0, 1, 2]
        disk.room = None
        assert lead(log, batch(1)) == (3, 3)
        assert offsets(log) == [0, 1, 2, 3]
        log.clear_tail_cache()
        assert offsets(log) == [0, 1, 2, 3]

    def test_while_rolling(self, failing: Place) -> None:
        disk = failing.disk
        assert isinstance(disk, FailingDisk)
        failing.config = LogConfig(segment_bytes=300, index_interval_bytes=10)
        log = failing.create()
        for room in (0, 1, 20, 40, 100):
            while log.segments.active.size + len(batch(1)) <= 300:
                lead(log, batch(1))
            disk.room = room
            with pytest.raises(KafkaError):
                lead(log, batch(1))
            disk.room = None
            lead(log, batch(1))
        assert offsets(log) == list(range(log.end))
        again = failing.reopen()
        assert (again.end, again.failure) == (log.end, None)

    def test_a_follower_that_could_not_write_still_knows_who_wrote_what_it_has(self, failing: Place) -> None:
        """What came was partly of a new leader; what comes next may be of the old one alone."""
        disk = failing.disk
        assert isinstance(disk, FailingDisk)
        log = failing.create()
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
    def test_a_roll_that_failed_leaves_no_segment_in_the_middle_of_what_follows(
        self, failing: Place, room: int, clean: bool
    ) -> None:
        """The batch that needed a new segment is refused; smaller ones go on in the old one."""
        disk = failing.disk
        assert isinstance(disk, FailingDisk)
        failing.config = LogConfig(segment_bytes=500, index_interval_bytes=10)
        log = failing.create()
        for _ in range(3):
            lead(log, batch(1))
        disk.room = room
        with pytest.raises(KafkaError):
            lead(log, batch(1, size=300))
        disk.room = None
        for _ in range(20):
            lead(log, batch(1))
        again = failing.reopen(LogCheckpoint(clean=clean))
        assert (again.end, again.failure) == (log.end, None)
        assert offsets(again) == list(range(log.end))

    def test_a_roll_that_failed_leaves_nothing_that_a_crash_could_take_for_the_end(self, failing: Place) -> None:
        disk = failing.disk
        assert isinstance(disk, FailingDisk)
        log = failing.create()
        lead(log, batch(1))
        disk.room = 0
        with pytest.raises(KafkaError):
            log.roll()
        disk.room = None
        lead(log, batch(1))
        log.roll()
        lead(log, batch(1))
        again = failing.reopen()
        assert (again.end, again.failure) == (3, None)
        assert offsets(again) == [0, 1, 2]

    def test_any_other_error_takes_the_partition_offline(self, failing: Place) -> None:
        disk = failing.disk
        assert isinstance(disk, FailingDisk)
        log = failing.create()
        lead(log, batch(1))
        disk.broken = {".log"}
        with pytest.raises(KafkaError, match=r"\.log"):
            lead(log, batch(1))
        disk.broken = set()
        assert log.failure is not None
        with pytest.raises(KafkaError):
            log.read(0, 1, up_to=1)
