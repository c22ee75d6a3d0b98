"""Reading: whole batches, limits, the shared tail, holes, index look-ups."""

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.tail_cache import MAX_ARENA_BYTES, TailBudget, TailCache
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.log_fixtures import FailingDisk, LogFolder, append_committed, batch, offsets, spans


@pytest.mark.parametrize("cold", [False, True], ids=["tail", "files"])
class TestFromTailAndFromFiles:
    """Reads have the same results from memory and from files."""

    def log(self, folder: LogFolder, cold: bool):  # type: ignore[no-untyped-def]
        log = folder.create()
        for count in (3, 1, 4, 1, 5):
            append_committed(log, batch(count, size=50))
        if cold:
            log.clear_tail_cache()
        return log

    def test_rule_11_read_inside_a_batch_returns_the_whole_batch(self, folder: LogFolder, cold: bool) -> None:
        log = self.log(folder, cold)
        assert spans(log.read(5, 1 << 20, up_to=14))[0] == (4, 7)

    def test_rule_11_first_batch_is_returned_even_above_max_bytes(self, folder: LogFolder, cold: bool) -> None:
        log = self.log(folder, cold)
        assert spans(log.read(0, 1, up_to=14)) == [(0, 2)]
        assert log.read(0, 1, up_to=14, at_least_one=False) == b""

    def test_max_bytes_bounds_whole_batches(self, folder: LogFolder, cold: bool) -> None:
        log = self.log(folder, cold)
        first_two = len(batch(3, size=50)) + len(batch(1, size=50))
        assert spans(log.read(0, first_two, up_to=14)) == [(0, 2), (3, 3)]
        assert spans(log.read(0, first_two - 1, up_to=14)) == [(0, 2)]
        assert spans(log.read(0, first_two + 1, up_to=14)) == [(0, 2), (3, 3)]

    def test_no_batch_ends_above_up_to(self, folder: LogFolder, cold: bool) -> None:
        log = self.log(folder, cold)
        assert spans(log.read(0, 1 << 20, up_to=8)) == [(0, 2), (3, 3), (4, 7)]
        assert spans(log.read(0, 1 << 20, up_to=7)) == [(0, 2), (3, 3)]
        assert log.read(0, 1 << 20, up_to=2) == b""
        assert log.read(8, 1 << 20, up_to=8) == b""

    def test_read_at_the_end_is_empty_and_beyond_is_out_of_range(self, folder: LogFolder, cold: bool) -> None:
        log = self.log(folder, cold)
        assert log.read(14, 1 << 20, up_to=14) == b""
        for offset in (15, -1):
            with pytest.raises(KafkaError) as caught:
                log.read(offset, 1 << 20, up_to=14)
            assert caught.value.code is ErrorCode.offset_out_of_range


def test_reads_continue_across_segments(folder: LogFolder) -> None:
    folder.config = LogConfig(segment_bytes=2_000, index_interval_bytes=100)
    log = folder.create()
    for _ in range(200):
        append_committed(log, batch(3, size=20))
    assert len(log.segments) > 10
    assert offsets(log) == list(range(600))
    log.clear_tail_cache()
    for max_bytes in (1, 150, 500, 1 << 20):
        assert offsets(log, max_bytes=max_bytes) == list(range(600))
    for offset in range(600):
        first, last = spans(log.read(offset, 1, up_to=600))[0]
        assert first <= offset <= last


def test_read_in_a_hole_returns_the_next_batch(folder: LogFolder) -> None:
    """Compaction leaves holes."""
    folder.config = LogConfig(segment_bytes=200, index_interval_bytes=1)
    log = folder.create()
    for base in (0, 10, 11, 50, 90, 200):
        log.append_as_follower(batch(2 if base != 10 else 1, base_offset=base, epoch=0), leader_epoch=0)
    log.advance_high_watermark(log.end)
    assert len(log.segments) > 2
    for _ in range(2):
        assert spans(log.read(2, 1, up_to=log.end)) == [(10, 10)]
        assert spans(log.read(13, 1, up_to=log.end)) == [(50, 51)]
        assert spans(log.read(150, 1, up_to=log.end)) == [(200, 201)]
        assert log.read(150, 1 << 20, up_to=150) == b""
        log.clear_tail_cache()


def test_readers_of_the_tail_share_its_bytes(folder: LogFolder) -> None:
    log = folder.create()
    for _ in range(20):
        append_committed(log, batch(1, size=2_000))
    one, other = log.read(3, 12_000, up_to=20), log.read(3, 12_000, up_to=20)
    assert isinstance(one, memoryview) and isinstance(other, memoryview)
    assert one.obj is other.obj


def test_view_of_the_tail_stays_valid_while_the_log_changes(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1, size=9_000))
    view = log.read(0, 1 << 20, up_to=1)
    kept = bytes(view)
    for _ in range(300):
        append_committed(log, batch(1, size=9_000))
    log.truncate_to(0)
    append_committed(log, batch(1, size=9_000), epoch=3)
    assert bytes(view) == kept


def test_budget_bounds_all_tails_together() -> None:
    budget = TailBudget(limit=100_000)
    tails = [TailCache(budget) for _ in range(20)]
    for tail in tails:
        arena = tail.arena_for(1_000, 0)
        arena.used = 1_000
        arena.ends.append(5)
        arena.stops.append(1_000)
    assert budget.used <= 100_000
    assert tails[0].read(0, 100, 5, True) is None
    assert tails[-1].read(0, 100, 5, True) is not None


def test_arenas_grow_and_hold_a_large_batch() -> None:
    tail = TailCache(TailBudget())
    sizes = []
    for _ in range(6):
        arena = tail.arena_for(1, 0)
        sizes.append(arena.size)
        arena.used = arena.size
    assert sizes[0] < sizes[1] < sizes[-1] == MAX_ARENA_BYTES
    assert tail.arena_for(MAX_ARENA_BYTES * 3, 0).size == MAX_ARENA_BYTES * 3


def test_reads_below_the_log_start_are_out_of_range(folder: LogFolder) -> None:
    log = folder.create()
    for _ in range(5):
        append_committed(log, batch(2))
    log.delete_records_before(3)
    with pytest.raises(KafkaError) as raised:
        log.read(2, 100, up_to=10)
    assert raised.value.code is ErrorCode.offset_out_of_range
    assert spans(log.read(3, 1, up_to=10)) == [(2, 3)]


def test_descriptors_and_indexes_in_memory_are_bounded(folder: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_broker.log.storage.INDEXES_IN_MEMORY", 5)
    folder.config = LogConfig(segment_bytes=200, index_interval_bytes=1)
    folder.storage.files.limit = 7
    log = folder.create()
    for _ in range(60):
        append_committed(log, batch(2))
    for _ in range(2):
        log.clear_tail_cache()
        assert offsets(log) == list(range(120))
        assert len(folder.storage.files) <= 7
        assert sum(segment.offsets.is_loaded for segment in log.segments) <= 6


def test_open_files_are_closed_when_descriptors_run_out(failing_folder: LogFolder) -> None:
    disk = failing_folder.disk
    assert isinstance(disk, FailingDisk)
    failing_folder.config = LogConfig(segment_bytes=200)
    log = failing_folder.create()
    for _ in range(20):
        append_committed(log, batch(2))
    log.clear_tail_cache()
    disk.descriptors = 0
    assert offsets(log, max_bytes=1) == list(range(40))
    assert log.failure is None
