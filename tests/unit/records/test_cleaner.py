"""The cleaner on real files: what a reader sees afterwards."""

import errno
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import read_offsets
from ottla_broker.log.cleaner import CHECKPOINT, CleanerConfig
from ottla_broker.log.compaction import BYTES_PER_KEY
from ottla_broker.wire.batch import iter_batches, pack_batch, parse_batch_header
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.records.cleaning import CONFIG, DAY_MS, NOW_MS, House


def test_a_log_is_compacted_in_place(house: House) -> None:
    house.fill()
    before, size, end = house.table(), house.log.size, house.log.end
    assert len(house.log.segments) > 2
    assert house.clean()
    assert house.table() == before
    assert [r.offset for r in house.records()] == list(range(90, 100))
    assert house.log.size < size / 5
    assert house.log.end == end
    assert read_offsets(house.disk, f"{house.path}/{CHECKPOINT}") == {("t", 0): 100}
    assert not house.clean(), "nothing is dirty any more"
    assert not [name for name in house.files() if name.endswith((file_names.CLEANED, file_names.SWAP))]
    house.crash_and_open()
    assert house.table() == before
    assert house.cleaner.checkpoints == {("t", 0): 100}


def test_segments_that_have_become_small_become_one(house: House) -> None:
    house.fill(rounds=30)
    house.clean()
    small = len(house.log.segments)
    house.fill(rounds=5)
    house.clean()
    assert len(house.log.segments) < small / 2
    assert len(house.records()) == 10


def test_reading_in_the_hole_gives_what_follows_it(house: House) -> None:
    house.fill()
    house.crash_and_open()  # nothing is read from memory
    house.clean()
    for offset in (0, 5, 89, 90, 95):
        data = house.log.read(offset, 1, up_to=house.log.end)
        assert next(header.last_offset for _, header in iter_batches(data)) >= offset, (
            "a reader gets on, if only by an empty batch"
        )
        assert house.records(offset)[0].offset == max(offset, 90)
    at = house.log.offset_for_timestamp(NOW_MS)
    assert at is not None
    assert at.offset == 90


def test_several_cleanings_with_little_memory(tmp_path: Path) -> None:
    house = House(tmp_path, settings=CleanerConfig(dedupe_buffer_bytes=3 * BYTES_PER_KEY))
    house.fill()
    before = house.table()
    cleanings = 0
    while house.clean():
        cleanings += 1
        assert house.table() == before
        assert cleanings < 200
    assert cleanings > 1


def test_tombstones_go_after_delete_retention_ms(house: House) -> None:
    house.write("gone", "1")
    house.write("gone", None)
    house.fill()
    house.clean()
    assert [r.key for r in house.records() if r.value is None] == [b"gone"]
    for later, left in ((DAY_MS - 1, 1), (2, 0)):
        house.now_ms += later
        house.fill()
        house.clean()
        assert sum(r.value is None for r in house.records()) == left


def test_the_active_segment_and_all_behind_the_high_watermark_stay(house: House) -> None:
    house.fill()
    house.write("key-1", "new")
    house.log.advance_high_watermark(40)
    house.clean()
    offsets = [r.offset for r in house.records()]
    assert offsets[-61:] == list(range(40, 101))


def test_transactions_and_producers(house: House) -> None:
    for sequence in range(3):
        house.write("a", f"{sequence}", producer_id=1000, sequence=sequence)
    house.append(encode_end_transaction_marker(False, 1, producer_id=1000, producer_epoch=0, timestamp_ms=NOW_MS))
    house.write("b", "1", producer_id=5, sequence=0)
    house.fill()
    house.clean()
    assert [r.key for r in house.records() if r.key in (b"a", b"b")] == [b"b"]
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in house.log.aborted_transactions(0, 200)] == [
        (1000, 0, 3)
    ]
    house.crash_and_open()
    states = {p.producer_id: (p.epoch, p.last_sequence, p.last_offset) for p in house.log.producers}
    assert states == {1000: (0, 2, 2), 5: (0, 0, 4)}
    house.write("b", "2", producer_id=5, sequence=1)
    with pytest.raises(KafkaError):
        house.append(
            encode_batch([Record(NOW_MS, b"b", b"")], producer_id=1000, producer_epoch=0, base_sequence=9),
            from_client=True,
        )


def test_every_segment_reaches_to_the_next_so_that_a_hole_there_is_a_loss(house: House) -> None:
    """Recovery does not know yet which topics are compacted, and cuts a log off where two segments do not meet."""
    house.fill(rounds=30)
    house.fill(rounds=1, keys=3)
    for _ in range(2):
        house.clean()
        for segment, following in pairwise(house.log.segments):
            assert segment.next_offset() == following.base
        house.fill(rounds=2)
    expected = house.table()
    house.config = replace(house.config, cleanup_compact=False)
    house.crash_and_open()
    assert house.table() == expected


def test_max_compaction_lag_ms_closes_segments_in_time(tmp_path: Path) -> None:
    """The active segment is never cleaned: it may not grow older than the lag that is allowed."""
    house = House(tmp_path, replace(CONFIG, max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1.0))
    house.write("a", "1")
    house.write("a", "2")
    house.now_ms += 60_001
    house.write("b", "1")
    assert len(house.log.segments) == 2
    assert house.clean(), "overdue, whatever the ratio"
    assert [r.offset for r in house.records()] == [1, 2]


def test_compact_and_delete_together(tmp_path: Path) -> None:
    house = House(tmp_path, replace(CONFIG, cleanup_delete=True, retention_ms=DAY_MS))
    house.fill()
    house.now_ms += DAY_MS + 1
    house.fill(keys=5)
    assert house.log.apply_retention(house.now_ms)
    start = house.log.start
    assert start > 0
    house.clean()
    assert house.log.start == start
    assert {r.key for r in house.records()} <= {b"key-%d" % n for n in range(10)}
    assert house.table() == {b"key-%d" % n: b"9-" + b"x" * 50 for n in range(5)}


def test_a_record_that_does_not_parse_leaves_the_log_alone_and_says_where(house: House) -> None:
    house.log.set_config(
        replace(CONFIG, cleanup_compact=False)
    )  # nobody looks into batches, so nobody refuses this one
    broken = bytearray(encode_batch([Record(NOW_MS, b"k", b"v")]))
    broken[61] = 0x7F  # the record's length
    house.append(pack_batch(parse_batch_header(broken), broken[61:]))
    house.log.roll()
    house.log.set_config(CONFIG)
    assert not house.clean()
    assert "00000000000000000000.log" in house.cleaner.uncleanable["t", 0]
    assert not house.clean()
    assert house.log.failure is None


def test_a_full_disk_only_puts_it_off(house: House) -> None:
    house.fill()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = house.records()
    house.disk.at_rename = full
    house.clean()
    assert house.log.failure is None
    house.disk.at_rename = lambda _: None
    assert house.records() == before
    assert house.clean()
    assert len(house.records()) == 10
