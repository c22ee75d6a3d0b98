"""Appending as a leader and as a follower: what is appended, rejected and stamped."""

import struct

import pytest
from crc32c import crc32c
from msgspec.structs import replace

from ottla_broker.log.config import LogConfig
from ottla_broker.wire.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    Compression,
    has_valid_crc,
    iter_batches,
    parse_batch_header,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch, iter_records
from tests.unit.log.log_fixtures import NOW, LogFolder, append_committed, batch, marker, offsets, spans


def with_header_field(data: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one header field changed and its CRC recomputed."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


def rejection_code(folder: LogFolder, data: bytes, config: LogConfig | None = None) -> ErrorCode:
    folder.config = config or folder.config
    log = folder.create()
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    assert log.end == 0 and log.size == 0 and log.failure is None
    assert caught.value.message
    return caught.value.code


def test_leader_assigns_offsets_and_stamps_its_epoch(folder: LogFolder) -> None:
    log = folder.create()
    assert append_committed(log, batch(3), epoch=4) == (0, 2)
    assert append_committed(log, batch(2), epoch=5) == (3, 4)
    data = log.read(0, 1 << 20, up_to=log.end)
    headers = [header for _, header in iter_batches(data)]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in headers] == [(0, 2, 4), (3, 4, 5)]
    assert [record.offset for _, record in iter_records(data)] == [0, 1, 2, 3, 4]
    assert log.epochs.entries() == [(4, 0), (5, 3)]


def test_append_does_not_change_the_senders_bytes(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(7))
    sent = bytearray(batch(1))
    before = bytes(sent)
    log.append_as_leader(sent, leader_epoch=3, now_ms=NOW)
    assert sent == before


def test_append_returns_offsets_counts_and_bytes(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(5))
    data = batch(3)
    done = log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    assert (done.first_offset, done.last_offset, done.record_count, done.byte_count) == (5, 7, 3, len(data))
    assert (done.log_append_time_ms, done.log_start_offset, done.is_duplicate) == (-1, 0, False)


@pytest.mark.parametrize(
    ("at", "form", "value", "code"),
    [
        (16, ">b", 1, ErrorCode.invalid_record),  # format 1
        (16, ">b", 3, ErrorCode.corrupt_message),
        (23, ">i", 4, ErrorCode.invalid_record),  # last offset delta ≠ count - 1
        (57, ">i", 0, ErrorCode.invalid_record),
        (21, ">h", CONTROL_FLAG, ErrorCode.invalid_record),
        (21, ">h", LOG_APPEND_TIME_FLAG, ErrorCode.invalid_timestamp),
        (21, ">h", 7, ErrorCode.unsupported_compression_type),
        (35, ">q", NOW + 3_600_001, ErrorCode.invalid_timestamp),
        (43, ">q", 5, ErrorCode.invalid_record),  # a producer id without a sequence
        (21, ">h", 0x10, ErrorCode.invalid_record),  # transactional without a producer id
        (8, ">i", 10, ErrorCode.corrupt_message),
        (8, ">i", 10_000, ErrorCode.invalid_record),
    ],
)
def test_leader_rejects_an_invalid_header(folder: LogFolder, at: int, form: str, value: int, code: ErrorCode) -> None:
    assert rejection_code(folder, with_header_field(batch(1), at, form, value)) is code


def test_leader_rejects_a_wrong_crc(folder: LogFolder) -> None:
    data = bytearray(batch(1))
    data[-1] ^= 1
    assert rejection_code(folder, bytes(data)) is ErrorCode.corrupt_message


def test_leader_rejects_a_cut_off_batch(folder: LogFolder) -> None:
    assert rejection_code(folder, batch(1)[:-1]) is ErrorCode.invalid_record
    assert rejection_code(folder, b"") is ErrorCode.invalid_record
    assert rejection_code(folder, batch(1) + b"\0") is ErrorCode.invalid_record


def test_leader_rejects_two_batches_of_a_client_and_appends_those_of_a_coordinator(folder: LogFolder) -> None:
    assert rejection_code(folder, batch(1) + batch(1)) is ErrorCode.invalid_record
    log = folder.create()
    done = log.append_as_leader(batch(2) + batch(3), leader_epoch=0, now_ms=NOW, from_client=False)
    assert (done.first_offset, done.last_offset, done.record_count) == (0, 4, 5)


def test_max_message_bytes_counts_the_whole_batch(folder: LogFolder) -> None:
    data = batch(1, size=100)
    assert rejection_code(folder, data, LogConfig(max_message_bytes=len(data) - 1)) is ErrorCode.message_too_large
    folder.config = LogConfig(max_message_bytes=len(data))
    assert append_committed(folder.create(), data) == (0, 0)


def test_message_format_is_checked_before_the_offset_and_the_offset_before_the_size(folder: LogFolder) -> None:
    data = bytearray(batch(1, size=100))
    data[:8], data[16] = b"\0\0\0\0\0\0\0\7", 3
    config = LogConfig(max_message_bytes=len(data) - 1)
    assert rejection_code(folder, bytes(data), config) is ErrorCode.corrupt_message
    data[16] = 2
    assert rejection_code(folder, bytes(data), config) is ErrorCode.invalid_record
    data[:8] = bytes(8)
    assert rejection_code(folder, bytes(data), config) is ErrorCode.message_too_large


def test_message_timestamp_before_max_ms_rejects_old_timestamps(folder: LogFolder) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1_000)
    recent_then_old = encode_batch([Record(NOW, b"k", b"v"), Record(NOW - 1_001, b"k", b"v")])
    assert rejection_code(folder, recent_then_old, config) is ErrorCode.invalid_timestamp
    assert rejection_code(folder, batch(1, timestamp=NOW - 1_001), config) is ErrorCode.invalid_timestamp
    assert append_committed(folder.create(), batch(1, timestamp=NOW - 1_000)) == (0, 0)


def test_rule_14_a_compacted_topic_refuses_records_without_a_key(folder: LogFolder) -> None:
    from ottla_broker.wire.records import Record, encode_batch

    keyless = bytes(encode_batch([Record(NOW, None, b"v")]))
    assert rejection_code(folder, keyless, LogConfig(cleanup_compact=True)) is ErrorCode.invalid_record
    assert append_committed(folder.create(), batch(1)) == (0, 0)


def test_rule_15_with_log_append_time_the_crc_is_computed_again(folder: LogFolder) -> None:
    folder.config = LogConfig(message_timestamp_type="LogAppendTime")
    log = folder.create()
    done = log.append_as_leader(batch(2, timestamp=5), leader_epoch=0, now_ms=NOW + 9)
    assert done.log_append_time_ms == NOW + 9
    data = log.read(0, 1 << 20, up_to=2)
    header = parse_batch_header(data)
    assert has_valid_crc(data, header)
    assert header.has_log_append_time and header.max_timestamp == NOW + 9
    assert [record.timestamp_ms for _, record in iter_records(data)] == [NOW + 9, NOW + 9]


def test_compression_type_of_the_topic_recompresses(folder: LogFolder) -> None:
    folder.config = LogConfig(compression_type="zstd")
    log = folder.create()
    append_committed(log, batch(20, size=100, compression=Compression.gzip))
    data = log.read(0, 1 << 20, up_to=log.end)
    assert parse_batch_header(data).compression is Compression.zstd
    assert [record.value for _, record in iter_records(data)] == [b"v" * 100] * 20


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("compression", [Compression.none, Compression.gzip])
def test_leader_rejects_a_clients_batch_larger_than_a_segment(
    folder: LogFolder, full: bool, compression: Compression
) -> None:
    folder.config = LogConfig(segment_bytes=500, compression_type="uncompressed")
    log = folder.create()
    if full:
        append_committed(log, batch(1, size=300))
    with pytest.raises(KafkaError, match=r"segment\.bytes allows 500") as refused:
        append_committed(log, batch(1, size=500, compression=compression))
    assert refused.value.code is ErrorCode.record_list_too_large
    assert log.end == full
    # A coordinator bounds its own batches.
    append_committed(log, batch(1, size=500), from_client=False)
    assert log.end == full + 1


def test_config_changes_apply_to_the_next_append(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(1))
    log.set_config(replace(folder.config, max_message_bytes=70, message_timestamp_type="LogAppendTime"))
    with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
        append_committed(log, batch(1, size=100))


class TestFollower:
    def test_follower_keeps_offsets_and_epochs(self, folder: LogFolder) -> None:
        log = folder.create()
        sent = batch(3, base_offset=0, epoch=2) + batch(2, base_offset=10, epoch=4)
        done = log.append_as_follower(sent, leader_epoch=4)
        assert (done.first_offset, done.last_offset, done.record_count) == (0, 11, 5)
        assert spans(log.read(0, 1 << 20, up_to=12)) == [(0, 2), (10, 11)]
        assert log.epochs.entries() == [(2, 0), (4, 10)]

    def test_follower_leaves_a_cut_off_batch_out(self, folder: LogFolder) -> None:
        log = folder.create()
        sent = batch(3, base_offset=0, epoch=1) + batch(2, base_offset=3, epoch=1)
        for cut in (1, 20, len(batch(2)) - 5):
            assert log.append_as_follower(sent[:-cut], leader_epoch=1).last_offset == 2
            log.truncate_to(0)
        assert log.append_as_follower(sent[:30], leader_epoch=1).record_count == 0

    def test_follower_rejects_offsets_below_its_end(self, folder: LogFolder) -> None:
        log = folder.create()
        log.append_as_follower(batch(3, base_offset=0, epoch=1), leader_epoch=1)
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(batch(3, base_offset=2, epoch=1), leader_epoch=1)
        assert caught.value.code is ErrorCode.offset_out_of_range

    def test_follower_rejects_corrupt_bytes(self, folder: LogFolder) -> None:
        log = folder.create()
        sent = bytearray(batch(3, base_offset=0, epoch=1))
        sent[-1] ^= 1
        with pytest.raises(KafkaError) as caught:
            log.append_as_follower(sent, leader_epoch=1)
        assert caught.value.code is ErrorCode.corrupt_message
        assert log.end == 0

    def test_follower_does_not_append_batches_of_a_newer_leader(self, folder: LogFolder) -> None:
        log = folder.create()
        sent = batch(3, base_offset=0, epoch=1) + batch(2, base_offset=3, epoch=2)
        assert log.append_as_follower(sent, leader_epoch=1).last_offset == 2
        assert offsets(log) == [0, 1, 2]

    def test_markers_end_transactions_on_a_follower(self, folder: LogFolder) -> None:
        leader = folder.create()
        append_committed(leader, batch(2, producer=(7, 0, 0), transactional=True))
        append_committed(leader, marker(False, 7), from_client=False)
        follower = LogFolder(folder.directory + "-follower").create()
        follower.append_as_follower(leader.read(0, 1 << 20, up_to=3), leader_epoch=0)
        follower.advance_high_watermark(2)
        assert follower.last_stable_offset == 0
        follower.advance_high_watermark(3)
        assert follower.last_stable_offset == 3
        assert [entry.producer_id for entry in follower.aborted_transactions(0, 3)] == [7]
