"""The cleaner on real files: what consumers read afterwards."""

import errno
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import read_offsets
from ottla_broker.log.cleaner import CHECKPOINT, CleanerConfig
from ottla_broker.log.compaction import BYTES_PER_KEY
from ottla_broker.wire.batch import iter_batches, pack_batch, parse_batch_header
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.log.committed_reading import read_as_consumer
from tests.unit.records.compacted_log import CONFIG, DAY_MS, NOW_MS, CompactedLog


def test_log_is_compacted_in_place(compacted: CompactedLog) -> None:
    compacted.fill()
    before, size, end = compacted.table(), compacted.log.size, compacted.log.end
    assert len(compacted.log.segments) > 2
    assert compacted.clean()
    assert compacted.table() == before
    assert [r.offset for r in compacted.records()] == list(range(90, 100))
    assert compacted.log.size < size / 5
    assert compacted.log.end == end
    assert read_offsets(compacted.disk, f"{compacted.path}/{CHECKPOINT}") == {("t", 0): 100}
    assert not compacted.clean(), "nothing is dirty"
    assert not [name for name in compacted.files() if name.endswith((file_names.CLEANED, file_names.SWAP))]
    compacted.crash_and_open()
    assert compacted.table() == before
    assert compacted.cleaner.checkpoints == {("t", 0): 100}


def test_small_segments_are_merged(compacted: CompactedLog) -> None:
    compacted.fill(rounds=30)
    compacted.clean()
    before = len(compacted.log.segments)
    compacted.fill(rounds=5)
    compacted.clean()
    assert len(compacted.log.segments) < before / 2
    assert len(compacted.records()) == 10


def test_read_in_a_hole_returns_what_follows(compacted: CompactedLog) -> None:
    compacted.fill()
    # So that nothing is read from memory.
    compacted.crash_and_open()
    compacted.clean()
    for offset in (0, 5, 89, 90, 95):
        data = compacted.log.read(offset, 1, up_to=compacted.log.end)
        assert next(header.last_offset for _, header in iter_batches(data)) >= offset, (
            "a reader advances, if only past an empty batch"
        )
        assert compacted.records(offset)[0].offset == max(offset, 90)
    at = compacted.log.offset_for_timestamp(NOW_MS)
    assert at is not None
    assert at.offset == 90


def test_values_stay_the_same_over_several_cleanings_with_little_memory(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path, cleaner_config=CleanerConfig(dedupe_buffer_bytes=3 * BYTES_PER_KEY))
    compacted.fill()
    before = compacted.table()
    cleanings = 0
    while compacted.clean():
        cleanings += 1
        assert compacted.table() == before
        assert cleanings < 200
    assert cleanings > 1


def test_tombstones_are_removed_after_delete_retention_ms(compacted: CompactedLog) -> None:
    compacted.write("gone", "1")
    compacted.write("gone", None)
    compacted.fill()
    compacted.clean()
    assert [r.key for r in compacted.records() if r.value is None] == [b"gone"]
    for later, left in ((DAY_MS - 1, 1), (2, 0)):
        compacted.now_ms += later
        compacted.fill()
        compacted.clean()
        assert sum(r.value is None for r in compacted.records()) == left


def test_active_segment_and_records_above_the_high_watermark_stay(compacted: CompactedLog) -> None:
    compacted.fill()
    compacted.write("key-1", "new")
    compacted.log.advance_high_watermark(40)
    compacted.clean()
    offsets = [r.offset for r in compacted.records()]
    assert offsets[-61:] == list(range(40, 101))


def test_aborted_transactions_are_removed_and_producer_state_stays(compacted: CompactedLog) -> None:
    for sequence in range(3):
        compacted.write("a", f"{sequence}", producer_id=1000, sequence=sequence)
    compacted.append(encode_end_transaction_marker(False, 1, producer_id=1000, producer_epoch=0, timestamp_ms=NOW_MS))
    compacted.write("b", "1", producer_id=5, sequence=0)
    compacted.fill()
    compacted.clean()
    assert [r.key for r in compacted.records() if r.key in (b"a", b"b")] == [b"b"]
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in compacted.log.aborted_transactions(0, 200)] == [
        (1000, 0, 3)
    ]
    compacted.crash_and_open()
    states = {p.producer_id: (p.epoch, p.last_sequence, p.last_offset) for p in compacted.log.producers}
    assert states == {1000: (0, 2, 2), 5: (0, 0, 4)}
    compacted.write("b", "2", producer_id=5, sequence=1)
    with pytest.raises(KafkaError):
        compacted.append(
            encode_batch([Record(NOW_MS, b"b", b"")], producer_id=1000, producer_epoch=0, base_sequence=9),
            from_client=True,
        )


@pytest.mark.parametrize("seed", range(3))
def test_committed_readers_see_the_same_values_of_a_compacted_log(tmp_path: Path, seed: int) -> None:
    """Segments end inside transactions, and the log is cleaned between a transaction's batches and
    its marker."""
    random = Random(seed)
    compacted = CompactedLog(tmp_path, replace(CONFIG, segment_bytes=600))
    sequences = {1000: 0, 1001: 0, 1002: 0}
    expected: dict[bytes, tuple[int, bytes]] = {}
    written: dict[int, list[tuple[int, str, str]]] = {}
    for number in range(300):
        producer = random.choice(sorted(sequences))
        if producer in written and random.randrange(4) == 0:
            commit = bool(random.randrange(2))
            compacted.append(
                encode_end_transaction_marker(commit, 1, producer_id=producer, producer_epoch=0, timestamp_ms=NOW_MS)
            )
            for offset, key, value in written.pop(producer):
                if commit and offset >= expected.get(key.encode(), (-1, b""))[0]:
                    expected[key.encode()] = offset, value.encode()
        else:
            key, value = f"key-{random.randrange(8)}", f"{number}"
            written.setdefault(producer, []).append((compacted.log.end, key, value))
            compacted.write(key, value, producer_id=producer, sequence=sequences[producer])
            sequences[producer] += 1
        if random.randrange(40) == 0:
            compacted.clean()
        if random.randrange(60) == 0:
            compacted.crash_and_open(clean=False)
    for producer in sorted(written):
        compacted.append(
            encode_end_transaction_marker(False, 1, producer_id=producer, producer_epoch=0, timestamp_ms=NOW_MS)
        )
    for _ in range(2):
        seen = {record.key: record.value for record in read_as_consumer(compacted.log, 0, random)}
        assert seen == {key: value for key, (_, value) in expected.items()}
        compacted.log.roll()
        compacted.clean()


def test_compacted_segments_have_no_gaps(compacted: CompactedLog) -> None:
    """Recovery does not know which topics are compacted. It cuts a log off at a gap between two
    segments."""
    compacted.fill(rounds=30)
    compacted.fill(rounds=1, key_count=3)
    for _ in range(2):
        compacted.clean()
        for segment, following in pairwise(compacted.log.segments):
            assert segment.next_offset() == following.base
        compacted.fill(rounds=2)
    expected = compacted.table()
    compacted.config = replace(compacted.config, cleanup_compact=False)
    compacted.crash_and_open()
    assert compacted.table() == expected


def test_max_compaction_lag_ms_rolls_segments(tmp_path: Path) -> None:
    """The active segment is never cleaned, so it must not grow older than the lag."""
    compacted = CompactedLog(tmp_path, replace(CONFIG, max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1.0))
    compacted.write("a", "1")
    compacted.write("a", "2")
    compacted.now_ms += 60_001
    compacted.write("b", "1")
    assert len(compacted.log.segments) == 2
    assert compacted.clean(), "overdue, whatever the ratio"
    assert [r.offset for r in compacted.records()] == [1, 2]


def test_a_log_with_both_cleanup_policies_is_compacted_and_loses_old_segments(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path, replace(CONFIG, cleanup_delete=True, retention_ms=DAY_MS))
    compacted.fill()
    compacted.now_ms += DAY_MS + 1
    compacted.fill(key_count=5)
    assert compacted.log.apply_retention(compacted.now_ms)
    start = compacted.log.start
    assert start > 0
    compacted.clean()
    assert compacted.log.start == start
    assert {r.key for r in compacted.records()} <= {b"key-%d" % n for n in range(10)}
    assert compacted.table() == {b"key-%d" % n: b"9-" + b"x" * 50 for n in range(5)}


def test_record_that_does_not_parse_makes_the_log_uncleanable(compacted: CompactedLog) -> None:
    # Without compaction batches are not parsed at the append.
    compacted.log.set_config(replace(CONFIG, cleanup_compact=False))
    broken = bytearray(encode_batch([Record(NOW_MS, b"k", b"v")]))
    broken[61] = 0x7F  # the record's length
    compacted.append(pack_batch(parse_batch_header(broken), broken[61:]))
    compacted.log.roll()
    compacted.log.set_config(CONFIG)
    assert not compacted.clean()
    assert "00000000000000000000.log" in compacted.cleaner.uncleanable["t", 0]
    assert not compacted.clean()
    assert compacted.log.failure is None


def test_full_disk_postpones_compaction(compacted: CompactedLog) -> None:
    compacted.fill()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = compacted.records()
    compacted.disk.at_rename = full
    compacted.clean()
    assert compacted.log.failure is None
    compacted.disk.at_rename = lambda _: None
    assert compacted.records() == before
    assert compacted.clean()
    assert len(compacted.records()) == 10
