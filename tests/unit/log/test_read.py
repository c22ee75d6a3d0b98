"""Reading: whole batches, limits, the shared tail, holes, index look-ups."""

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.tail_cache import LARGEST_ARENA, TailBudget, TailCache
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.making import FailingDisk, Place, batch, lead, offsets, spans


@pytest.mark.parametrize("cold", [False, True], ids=["tail", "files"])
class TestBothWays:
    """The same answers from memory and from files."""

    def log(self, place: Place, cold: bool):  # type: ignore[no-untyped-def]
        log = place.create()
        for count in (3, 1, 4, 1, 5):
            lead(log, batch(count, size=50))
        if cold:
            log.clear_tail_cache()
        return log

    def test_rule_11_a_fetch_from_inside_a_batch_returns_the_whole_batch(self, place: Place, cold: bool) -> None:
        log = self.log(place, cold)
        assert spans(log.read(5, 1 << 20, up_to=14))[0] == (4, 7)

    def test_rule_11_the_first_batch_is_returned_even_above_the_limit(self, place: Place, cold: bool) -> None:
        log = self.log(place, cold)
        assert spans(log.read(0, 1, up_to=14)) == [(0, 2)]
        assert log.read(0, 1, up_to=14, at_least_one=False) == b""

    def test_the_limit_is_kept_by_whole_batches(self, place: Place, cold: bool) -> None:
        log = self.log(place, cold)
        first_two = len(batch(3, size=50)) + len(batch(1, size=50))
        assert spans(log.read(0, first_two, up_to=14)) == [(0, 2), (3, 3)]
        assert spans(log.read(0, first_two - 1, up_to=14)) == [(0, 2)]
        assert spans(log.read(0, first_two + 1, up_to=14)) == [(0, 2), (3, 3)]

    def test_nothing_above_up_to(self, place: Place, cold: bool) -> None:
        log = self.log(place, cold)
        assert spans(log.read(0, 1 << 20, up_to=8)) == [(0, 2), (3, 3), (4, 7)]
        assert spans(log.read(0, 1 << 20, up_to=7)) == [(0, 2), (3, 3)]
        assert log.read(0, 1 << 20, up_to=2) == b""
        assert log.read(8, 1 << 20, up_to=8) == b""

    def test_the_end_is_empty_and_beyond_is_out_of_range(self, place: Place, cold: bool) -> None:
        log = self.log(place, cold)
        assert log.read(14, 1 << 20, up_to=14) == b""
        for offset in (15, -1):
            with pytest.raises(KafkaError) as caught:
                log.read(offset, 1 << 20, up_to=14)
            assert caught.value.code is ErrorCode.offset_out_of_range


def test_many_segments_read_through(place: Place) -> None:
    place.config = LogConfig(segment_bytes=2_000, index_interval_bytes=100)
    log = place.create()
    for _ in range(200):
        lead(log, batch(3, size=20))
    assert len(log.segments) > 10
    assert offsets(log) == list(range(600))
    log.clear_tail_cache()
    for max_bytes in (1, 150, 500, 1 << 20):
        assert offsets(log, max_bytes=max_bytes) == list(range(600))
    for offset in range(600):
        first, last = spans(log.read(offset, 1, up_to=600))[0]
        assert first <= offset <= last


def test_offsets_with_holes_read_right(place: Place) -> None:
    """As compaction leaves them: a fetch from a hole goes on with the next batch."""
    place.config = LogConfig(segment_bytes=200, index_interval_bytes=1)
    log = place.create()
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


def test_readers_of_the_tail_share_its_bytes(place: Place) -> None:
    log = place.create()
    for _ in range(20):
        lead(log, batch(1, size=2_000))
    one, other = log.read(3, 12_000, up_to=20), log.read(3, 12_000, up_to=20)
    assert isinstance(one, memoryview) and isinstance(other, memoryview)
    assert one.obj is other.obj


def test_a_view_stays_right_while_the_log_goes_on(place: Place) -> None:
    log = place.create()
    lead(log, batch(1, size=9_000))
    view = log.read(0, 1 << 20, up_to=1)
    kept = bytes(view)
    for _ in range(300):
        lead(log, batch(1, size=9_000))
    log.truncate_to(0)
    lead(log, batch(1, size=9_000), epoch=3)
    assert bytes(view) == kept


def test_all_tails_together_keep_within_the_budget() -> None:
    budget = TailBudget(limit=100_000)
    tails = [TailCache(budget) for _ in range(20)]
    for tail in tails:
        arena = tail.room(1_000, 0)
        arena.used = 1_000
        arena.ends.append(5)
        arena.stops.append(1_000)
    assert budget.used <= 100_000
    assert tails[0].read(0, 100, 5, True) is None
    assert tails[-1].read(0, 100, 5, True) is not None


def test_arenas_grow_with_use_and_take_a_large_batch() -> None:
    tail = TailCache(TailBudget())
    sizes = []
    for _ in range(6):
        arena = tail.room(1, 0)
        sizes.append(arena.size)
        arena.used = arena.size
    assert sizes[0] < sizes[1] < sizes[-1] == LARGEST_ARENA
    assert tail.room(LARGEST_ARENA * 3, 0).size == LARGEST_ARENA * 3


def test_the_log_start_bounds_reading(place: Place) -> None:
    log = place.create()
    for _ in range(5):
        lead(log, batch(2))
    log.delete_records_before(3)
    with pytest.raises(KafkaError):
        log.read(2, 100, up_to=10)
    assert spans(log.read(3, 1, up_to=10)) == [(2, 3)]


def test_descriptors_and_indexes_in_memory_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_broker.log.storage.INDEXES_IN_MEMORY", 5)
    place.config = LogConfig(segment_bytes=200, index_interval_bytes=1)
    place.storage.files.limit = 7
    log = place.create()
    for _ in range(60):
        lead(log, batch(2))
    for _ in range(2):
        log.clear_tail_cache()
        assert offsets(log) == list(range(120))
        assert len(place.storage.files) <= 7
        assert sum(segment.offsets.is_loaded for segment in log.segments) <= 6


def test_without_descriptors_the_files_give_theirs_up(failing: Place) -> None:
    disk = failing.disk
    assert isinstance(disk, FailingDisk)
    failing.config = LogConfig(segment_bytes=200)
    log = failing.create()
    for _ in range(20):
        lead(log, batch(2))
    log.clear_tail_cache()
    disk.descriptors = 0
    assert offsets(log, max_bytes=1) == list(range(40))
    assert log.failure is None
