"""The source position in batches, markers and producer snapshots."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.config import LogConfig
from ottla_broker.log.producer_rebuild import replay_batch
from ottla_broker.log.producer_snapshots import decode_producer_snapshot, encode_producer_snapshot
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID, ProducerStates
from ottla_broker.log.validation import HeaderFields, validate_client_batch
from ottla_broker.mirroring.appended_offsets import committed_batches
from ottla_broker.mirroring.source_positions import (
    SEQUENCE_COUNT,
    SOURCE_OFFSET_LIMIT,
    encode_position_marker,
    source_position,
    stamp_source_position,
)
from ottla_broker.wire.batch import (
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    has_valid_crc,
    pack_batch,
    parse_batch_header,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import decode_batch
from tests.unit.log.log_fixtures import NOW, batch, marker

PRODUCER_ID = FIRST_RESERVED_PRODUCER_ID + 5


def stamped_batch(data: bytes, append_time_ms: int | None = None) -> bytearray:
    """A copy of the batch at offset 7, stamped with its source position."""
    found = bytearray(data)
    stamp_source_position(
        memoryview(found),
        0,
        HEADER.unpack_from(found),
        producer_id=PRODUCER_ID,
        base_offset=7,
        leader_epoch=3,
        append_time_ms=append_time_ms,
    )
    return found


def replay(states: ProducerStates, data: bytes | bytearray) -> int:
    replay_batch(states, parse_batch_header(data), data, NOW)
    return source_position(states.get(PRODUCER_ID))


OFFSETS = st.one_of(
    st.integers(0, 100),
    st.integers(SEQUENCE_COUNT - 50, SEQUENCE_COUNT + 50),
    st.integers(5 * SEQUENCE_COUNT - 50, 5 * SEQUENCE_COUNT),
    st.integers(0, SOURCE_OFFSET_LIMIT - 200),
)


@given(st.lists(st.tuples(OFFSETS, st.integers(1, 60), st.booleans()), min_size=1, max_size=6))
def test_last_batch_or_marker_decides_the_position(batches: list[tuple[int, int, bool]]) -> None:
    """Holds for the producer state of the log, and for a state restored from a snapshot at any
    moment."""
    states = ProducerStates()
    for base, count, is_batch in batches:
        if is_batch:
            data: bytes | bytearray = stamped_batch(batch(count, base_offset=base))
            wanted = base + count
        else:
            wanted = base + 1
            data = encode_position_marker(PRODUCER_ID, wanted, base_offset=9, leader_epoch=3, timestamp_ms=NOW)
        assert replay(states, data) == wanted
        (again,) = decode_producer_snapshot(encode_producer_snapshot(states), NOW)
        assert source_position(again) == wanted


def test_unknown_source_begins_at_offset_0() -> None:
    assert source_position(None) == 0


def test_stamped_batch_keeps_its_records_and_is_not_transactional() -> None:
    sent = batch(3, base_offset=40, producer=(8, 2, 17), transactional=True, step_ms=5)
    header = parse_batch_header(sent)
    sent = pack_batch(replace(header, attributes=header.attributes | DELETE_HORIZON_FLAG), sent[HEADER_SIZE:])
    found = stamped_batch(sent)
    after = parse_batch_header(found)
    assert has_valid_crc(found, after)
    assert (after.base_offset, after.leader_epoch, after.producer_id, after.base_sequence, after.count) == (
        7,
        3,
        PRODUCER_ID,
        40,
        3,
    )
    assert not after.is_transactional and not after.has_delete_horizon
    before = [(one.timestamp_ms, one.key, one.value) for one in decode_batch(sent, header)]
    assert [(one.timestamp_ms, one.key, one.value) for one in decode_batch(found, after)] == before
    stamped = stamped_batch(sent, append_time_ms=NOW + 5)
    assert {one.timestamp_ms for one in decode_batch(stamped, parse_batch_header(stamped))} == {NOW + 5}


def test_unsupported_source_offset_is_rejected() -> None:
    stamped_batch(batch(1, base_offset=SOURCE_OFFSET_LIMIT - 1))
    with pytest.raises(ValueError, match=f"source offset {SOURCE_OFFSET_LIMIT} is not supported"):
        stamped_batch(batch(2, base_offset=SOURCE_OFFSET_LIMIT - 1))


def test_producers_may_not_use_reserved_producer_ids() -> None:
    sent = batch(1, producer=(PRODUCER_ID, 0, 0))
    fields: HeaderFields = HEADER.unpack_from(sent)
    with pytest.raises(KafkaError) as caught:
        validate_client_batch(sent, fields, LogConfig(), NOW)
    assert caught.value.code is ErrorCode.invalid_record


def test_source_positions_do_not_expire() -> None:
    states = ProducerStates()
    replay(states, stamped_batch(batch(2, base_offset=5)))
    replay_batch(states, parse_batch_header(plain := batch(1, producer=(6, 0, 0))), plain, NOW)
    assert states.remove_expired(NOW + 10**12, 1) == 1
    assert source_position(states.get(PRODUCER_ID)) == 7


def test_only_committed_batches_are_appended() -> None:
    """Two transactions of different producers overlap; one began before the response."""
    sent = [
        batch(1, base_offset=10, producer=(1, 0, 0), transactional=True),  # aborted, began before
        batch(2, base_offset=11, producer=(2, 0, 0), transactional=True),
        batch(1, base_offset=13),
        with_base_offset(marker(False, 1), 14),
        batch(1, base_offset=15, producer=(1, 0, 1), transactional=True),  # the next transaction of producer 1
        batch(1, base_offset=16, producer=(3, 0, 0), transactional=True),  # aborted
        with_base_offset(marker(True, 2), 17),
        with_base_offset(marker(True, 1), 18),
        with_base_offset(marker(False, 3), 19),
    ]
    data, found, position = b"".join(sent), [], 0
    for one in sent:
        found.append((position, HEADER.unpack_from(one)))
        position += len(one)
    kept = committed_batches(memoryview(bytearray(data)), found, [(3, 16), (1, 4)])
    assert [fields[0] for _, fields in kept] == [11, 13, 15]


def with_base_offset(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8) + data[8:]
