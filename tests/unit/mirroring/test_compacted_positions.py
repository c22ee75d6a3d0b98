"""Compaction keeps the last committed position of an appended source, with which a new leader
continues.
"""

from pathlib import Path

from ottla_broker.log.cleaning_job import can_clean
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.mirroring.source_positions import encode_position_marker
from ottla_broker.wire.batch import parse_batch_header
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.records.compacted_log import NOW_MS, CompactedLog

PRODUCER_ID = FIRST_RESERVED_PRODUCER_ID + 3


def append_copied_batch(compacted: CompactedLog, sequence: int) -> int:
    """Appends a batch of a source and returns its offset."""
    at = compacted.log.end
    record = Record(NOW_MS, b"key-0", b"copied")
    data = encode_batch(
        [record], base_offset=at, leader_epoch=0, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence
    )
    compacted.log.append_as_follower(data, leader_epoch=0)
    return at


def position_offsets(compacted: CompactedLog) -> list[int]:
    """Offsets of batches with a source position."""
    found, at = [], compacted.log.start
    while at < compacted.log.end:
        header = parse_batch_header(compacted.log.read(at, 1, up_to=compacted.log.end))
        if header.producer_id == PRODUCER_ID:
            found.append(header.base_offset)
        at = header.next_offset
    return found


def test_last_committed_position_survives_compaction(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path)
    first, committed = append_copied_batch(compacted, 0), append_copied_batch(compacted, 1)
    compacted.fill()
    high_watermark = compacted.log.end
    uncommitted = append_copied_batch(compacted, 2)
    compacted.log.advance_high_watermark(high_watermark)
    assert compacted.clean()
    assert position_offsets(compacted) == [committed, uncommitted] and first not in position_offsets(compacted)


def test_log_is_not_cleaned_while_the_last_committed_position_is_unknown(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path)
    append_copied_batch(compacted, 0)
    compacted.fill()
    high_watermark = compacted.log.end
    for sequence in range(1, 7):  # more batches than the log remembers
        append_copied_batch(compacted, sequence)
    compacted.log.advance_high_watermark(high_watermark)
    assert not can_clean(compacted.log) and not compacted.clean()
    compacted.log.advance_high_watermark(compacted.log.end)
    assert can_clean(compacted.log) and compacted.clean()


def test_position_marker_survives_compaction(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path)
    at = compacted.log.end
    marker = encode_position_marker(PRODUCER_ID, 70, base_offset=at, leader_epoch=0, timestamp_ms=NOW_MS)
    compacted.log.append_as_follower(marker, leader_epoch=0)
    compacted.fill()
    assert compacted.clean()
    compacted.now_ms *= 2
    compacted.fill()
    assert compacted.clean()
    assert position_offsets(compacted) == [at]
