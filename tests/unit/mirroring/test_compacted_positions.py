"""Compaction leaves of every source what says how far it was copied, and no change of leader can take it away."""

from pathlib import Path

from ottla_broker.log.cleaning_job import can_clean
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.mirroring.source_positions import encode_position_marker
from ottla_broker.wire.batch import parse_batch_header
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.records.compacted_log import NOW_MS, CompactedLog

MARK = FIRST_RESERVED_PRODUCER_ID + 3


def copied(compacted: CompactedLog, sequence: int) -> int:
    """Appends a batch that came from a source; its offset."""
    at = compacted.log.end
    record = Record(NOW_MS, b"key-0", b"copied")
    data = encode_batch(
        [record], base_offset=at, leader_epoch=0, producer_id=MARK, producer_epoch=0, base_sequence=sequence
    )
    compacted.log.append_as_follower(data, leader_epoch=0)
    return at


def marks(compacted: CompactedLog) -> list[int]:
    """Offsets of what says how far the source was copied."""
    found, at = [], compacted.log.start
    while at < compacted.log.end:
        header = parse_batch_header(compacted.log.read(at, 1, up_to=compacted.log.end))
        if header.producer_id == MARK:
            found.append(header.base_offset)
        at = header.next_offset
    return found


def test_the_last_one_that_is_committed_stays(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path)
    first, committed = copied(compacted, 0), copied(compacted, 1)
    compacted.fill()
    high_watermark = compacted.log.end
    not_yet = copied(compacted, 2)
    compacted.log.advance_high_watermark(high_watermark)
    assert compacted.clean()
    assert marks(compacted) == [committed, not_yet] and first not in marks(compacted)


def test_while_that_is_not_known_nothing_is_cleaned(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path)
    copied(compacted, 0)
    compacted.fill()
    high_watermark = compacted.log.end
    for sequence in range(1, 7):  # more than are remembered
        copied(compacted, sequence)
    compacted.log.advance_high_watermark(high_watermark)
    assert not can_clean(compacted.log) and not compacted.clean()
    compacted.log.advance_high_watermark(compacted.log.end)
    assert can_clean(compacted.log) and compacted.clean()


def test_a_statement_stays(tmp_path: Path) -> None:
    compacted = CompactedLog(tmp_path)
    at = compacted.log.end
    said = encode_position_marker(MARK, 70, base_offset=at, leader_epoch=0, timestamp_ms=NOW_MS)
    compacted.log.append_as_follower(said, leader_epoch=0)
    compacted.fill()
    assert compacted.clean()
    compacted.now_ms *= 2
    compacted.fill()
    assert compacted.clean()
    assert marks(compacted) == [at]
