"""How far a source was copied, as batches, markers and snapshots carry it."""

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

MARK = FIRST_RESERVED_PRODUCER_ID + 5


def marked(data: bytes, base_offset: int = 7, append_time_ms: int | None = None) -> bytearray:
    found = bytearray(data)
    stamp_source_position(
        memoryview(found),
        0,
        HEADER.unpack_from(found),
        producer_id=MARK,
        base_offset=base_offset,
        leader_epoch=3,
        append_time_ms=append_time_ms,
    )
    return found


def noted(states: ProducerStates, data: bytes | bytearray) -> int:
    replay_batch(states, parse_batch_header(data), data, NOW)
    return source_position(states.get(MARK))


OFFSETS = st.one_of(
    st.integers(0, 100),
    st.integers(SEQUENCE_COUNT - 50, SEQUENCE_COUNT + 50),
    st.integers(5 * SEQUENCE_COUNT - 50, 5 * SEQUENCE_COUNT),
    st.integers(0, SOURCE_OFFSET_LIMIT - 200),
)


@given(st.lists(st.tuples(OFFSETS, st.integers(1, 60), st.booleans()), min_size=1, max_size=6))
def test_whatever_came_last_says_how_far_it_was_copied(came: list[tuple[int, int, bool]]) -> None:
    """In the state that grows with the log, and in what a snapshot at any moment makes of it."""
    states = ProducerStates()
    for base, count, is_batch in came:
        if is_batch:
            data: bytes | bytearray = marked(batch(count, base_offset=base))
            wanted = base + count
        else:
            wanted = base + 1
            data = encode_position_marker(MARK, wanted, base_offset=9, leader_epoch=3, timestamp_ms=NOW)
        assert noted(states, data) == wanted
        (again,) = decode_producer_snapshot(encode_producer_snapshot(states), NOW)
        assert source_position(again) == wanted


def test_what_nothing_is_known_of_begins_at_the_beginning() -> None:
    assert source_position(None) == 0


def test_a_batch_keeps_its_records_and_is_plain_data() -> None:
    sent = batch(3, base_offset=40, producer=(8, 2, 17), transactional=True, step_ms=5)
    header = parse_batch_header(sent)
    sent = pack_batch(replace(header, attributes=header.attributes | DELETE_HORIZON_FLAG), sent[HEADER_SIZE:])
    found = marked(sent)
    now = parse_batch_header(found)
    assert has_valid_crc(found, now)
    assert (now.base_offset, now.leader_epoch, now.producer_id, now.base_sequence, now.count) == (7, 3, MARK, 40, 3)
    assert not now.is_transactional and not now.has_delete_horizon
    before = [(one.timestamp_ms, one.key, one.value) for one in decode_batch(sent, header)]
    assert [(one.timestamp_ms, one.key, one.value) for one in decode_batch(found, now)] == before
    stamped = marked(sent, append_time_ms=NOW + 5)
    assert {one.timestamp_ms for one in decode_batch(stamped, parse_batch_header(stamped))} == {NOW + 5}


def test_offsets_that_cannot_be_carried_are_refused() -> None:
    marked(batch(1, base_offset=SOURCE_OFFSET_LIMIT - 1))
    with pytest.raises(ValueError, match=f"source offset {SOURCE_OFFSET_LIMIT} is not supported"):
        marked(batch(2, base_offset=SOURCE_OFFSET_LIMIT - 1))


def test_nobody_else_may_use_such_an_id() -> None:
    fields: HeaderFields = HEADER.unpack_from(batch(1, producer=(MARK, 0, 0)))
    with pytest.raises(KafkaError) as caught:
        validate_client_batch(fields, LogConfig(), NOW)
    assert caught.value.code is ErrorCode.invalid_record


def test_they_do_not_expire() -> None:
    states = ProducerStates()
    noted(states, marked(batch(2, base_offset=5)))
    replay_batch(states, parse_batch_header(plain := batch(1, producer=(6, 0, 0))), plain, NOW)
    assert states.remove_expired(NOW + 10**12, 1) == 1
    assert source_position(states.get(MARK)) == 7


def test_only_what_was_committed_is_appended() -> None:
    """Two transactions of different producers lie inside of each other; one was begun before what is looked at."""
    sent = [
        batch(1, base_offset=10, producer=(1, 0, 0), transactional=True),  # aborted, begun before
        batch(2, base_offset=11, producer=(2, 0, 0), transactional=True),
        batch(1, base_offset=13),
        at(marker(False, 1), 14),
        batch(1, base_offset=15, producer=(1, 0, 1), transactional=True),  # its next one
        batch(1, base_offset=16, producer=(3, 0, 0), transactional=True),  # aborted
        at(marker(True, 2), 17),
        at(marker(True, 1), 18),
        at(marker(False, 3), 19),
    ]
    data, found, position = b"".join(sent), [], 0
    for one in sent:
        found.append((position, HEADER.unpack_from(one)))
        position += len(one)
    kept = committed_batches(memoryview(bytearray(data)), found, [(3, 16), (1, 4)])
    assert [fields[0] for _, fields in kept] == [11, 13, 15]


def at(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8) + data[8:]
