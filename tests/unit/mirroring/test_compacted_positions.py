"""Compaction leaves of every source what says how far it was copied, and no change of leader can take it away."""

from pathlib import Path

from ottla_broker.log.cleaning_job import can_clean
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.mirroring.source_positions import encode_position_marker
from ottla_broker.wire.batch import parse_batch_header
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.records.cleaning import NOW_MS, House

MARK = FIRST_RESERVED_PRODUCER_ID + 3


def copied(house: House, sequence: int) -> int:
    """Appends a batch that came from a source; its offset."""
    at = house.log.end
    record = Record(NOW_MS, b"key-0", b"copied")
    data = encode_batch(
        [record], base_offset=at, leader_epoch=0, producer_id=MARK, producer_epoch=0, base_sequence=sequence
    )
    house.log.append_as_follower(data, leader_epoch=0)
    return at


def marks(house: House) -> list[int]:
    """Offsets of what says how far the source was copied."""
    found, at = [], house.log.start
    while at < house.log.end:
        header = parse_batch_header(house.log.read(at, 1, up_to=house.log.end))
        if header.producer_id == MARK:
            found.append(header.base_offset)
        at = header.next_offset
    return found


def test_the_last_one_that_is_committed_stays(tmp_path: Path) -> None:
    house = House(tmp_path)
    first, committed = copied(house, 0), copied(house, 1)
    house.fill()
    high_watermark = house.log.end
    not_yet = copied(house, 2)
    house.log.advance_high_watermark(high_watermark)
    assert house.clean()
    assert marks(house) == [committed, not_yet] and first not in marks(house)


def test_while_that_is_not_known_nothing_is_cleaned(tmp_path: Path) -> None:
    house = House(tmp_path)
    copied(house, 0)
    house.fill()
    high_watermark = house.log.end
    for sequence in range(1, 7):  # more than are remembered
        copied(house, sequence)
    house.log.advance_high_watermark(high_watermark)
    assert not can_clean(house.log) and not house.clean()
    house.log.advance_high_watermark(house.log.end)
    assert can_clean(house.log) and house.clean()


def test_a_statement_stays(tmp_path: Path) -> None:
    house = House(tmp_path)
    at = house.log.end
    said = encode_position_marker(MARK, 70, base_offset=at, leader_epoch=0, timestamp_ms=NOW_MS)
    house.log.append_as_follower(said, leader_epoch=0)
    house.fill()
    assert house.clean()
    house.now_ms *= 2
    house.fill()
    assert house.clean()
    assert marks(house) == [at]
