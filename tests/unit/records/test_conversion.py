"""Changes that a leader makes to a batch, and batches that it rejects, because of the topic's
config.
"""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.config import LogConfig
from ottla_broker.log.record_validation import MAX_RECORD_ERRORS, InvalidRecords, validate_records
from ottla_broker.log.validation import convert_batch, needs_conversion
from ottla_broker.wire.batch import Compression, has_valid_crc, parse_batch_header
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record, decode_batch, encode_batch
from tests.unit.records.record_strategies import codecs, record_lists, timestamps_ms

CompressionType = Literal["uncompressed", "gzip", "snappy", "lz4", "zstd"]
types = st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"])
some_record = Record(1000, b"k", b"v" * 100)


@given(record_lists, codecs, types)
def test_recompression_changes_the_codec_only(
    given_records: list[Record], codec: Compression, wanted: CompressionType
) -> None:
    config = LogConfig(compression_type=wanted)
    batch = encode_batch(given_records, compression=codec, producer_id=4, producer_epoch=1, base_sequence=2)
    header = parse_batch_header(batch)
    expected = Compression.none if wanted == "uncompressed" else Compression[wanted]
    assert needs_conversion(header, config) == (codec is not expected)
    out = convert_batch(batch, header, config, now_ms=5)
    after = parse_batch_header(out)
    assert has_valid_crc(out, after)
    assert after.compression is expected
    assert decode_batch(out, after) == decode_batch(batch, header)
    assert replace(after, crc=header.crc, length=header.length, attributes=header.attributes) == header


@given(record_lists, codecs, timestamps_ms)
def test_rule_15_log_append_time_computes_the_crc_anew(
    given_records: list[Record], codec: Compression, now_ms: int
) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    batch = encode_batch(given_records, compression=codec)
    header = parse_batch_header(batch)
    assert needs_conversion(header, config)
    out = convert_batch(batch, header, config, now_ms=now_ms)
    after = parse_batch_header(out)
    assert has_valid_crc(out, after)
    assert after.has_log_append_time
    assert after.max_timestamp == now_ms
    assert len(out) == len(batch), "the records' bytes do not change"
    expected = [replace(record, timestamp_ms=now_ms) for record in decode_batch(batch, header)]
    assert decode_batch(out, after) == expected


@given(record_lists, timestamps_ms)
def test_producers_log_append_time_flag_is_ignored(given_records: list[Record], lie_ms: int) -> None:
    batch = encode_batch(given_records, log_append_time_ms=lie_ms)
    header = parse_batch_header(batch)
    assert needs_conversion(header, LogConfig())
    out = convert_batch(batch, header, LogConfig(), now_ms=9)
    assert out == encode_batch(given_records)


def test_default_config_changes_no_batch() -> None:
    for codec in Compression:
        batch = encode_batch([some_record], compression=codec)
        header = parse_batch_header(batch)
        assert not needs_conversion(header, LogConfig())
        assert convert_batch(batch, header, LogConfig(), now_ms=5) == batch


def test_markers_get_log_append_time_and_are_not_compressed() -> None:
    marker = encode_end_transaction_marker(True, 1, producer_id=1, producer_epoch=0, timestamp_ms=5)
    header = parse_batch_header(marker)
    assert not needs_conversion(header, LogConfig(compression_type="zstd"))
    config = LogConfig(compression_type="zstd", message_timestamp_type="LogAppendTime")
    after = parse_batch_header(convert_batch(marker, header, config, now_ms=77))
    assert (after.compression, after.max_timestamp) == (Compression.none, 77)


def test_compression_level_is_that_of_the_topic() -> None:
    batch = encode_batch([Record(1, b"k", b"".join(b"%d;" % (n * n) for n in range(20_000)))])
    header = parse_batch_header(batch)

    for codec, low, high in (("gzip", 1, 9), ("zstd", 1, 19), ("lz4", 9, 12)):
        sizes = [len(convert_batch(batch, header, level_config(codec, level), now_ms=0)) for level in (low, high)]
        assert sizes[1] < sizes[0], codec


def level_config(codec: str, level: int) -> LogConfig:
    match codec:
        case "gzip":
            return LogConfig(compression_type="gzip", compression_gzip_level=level)
        case "lz4":
            return LogConfig(compression_type="lz4", compression_lz4_level=level)
        case _:
            return LogConfig(compression_type="zstd", compression_zstd_level=level)


@given(record_lists, codecs)
def test_rule_14_compacted_topics_reject_records_without_a_key(given_records: list[Record], codec: Compression) -> None:
    config = LogConfig(cleanup_compact=True, message_timestamp_type="LogAppendTime")
    batch = encode_batch(given_records, compression=codec)
    without_key = [index for index, record in enumerate(given_records) if record.key is None]
    if not without_key:
        validate_records(batch, parse_batch_header(batch), config, now_ms=0)
        return
    with pytest.raises(InvalidRecords) as refusal:
        validate_records(batch, parse_batch_header(batch), config, now_ms=0)
    assert refusal.value.code is ErrorCode.invalid_record
    assert [index for index, _ in refusal.value.record_errors] == without_key


@given(record_lists, codecs, st.integers(0, 1 << 41), st.integers(0, 1 << 41), st.integers(0, 1 << 41))
def test_bounds_of_timestamps_apply_to_every_record(
    given_records: list[Record], codec: Compression, now_ms: int, before_ms: int, after_ms: int
) -> None:
    config = LogConfig(message_timestamp_before_max_ms=before_ms, message_timestamp_after_max_ms=after_ms)
    batch = encode_batch(given_records, compression=codec)
    outside = [
        index
        for index, record in enumerate(given_records)
        if record.timestamp_ms != -1 and not -before_ms <= record.timestamp_ms - now_ms <= after_ms
    ]
    if not outside:
        validate_records(batch, parse_batch_header(batch), config, now_ms)
        return
    with pytest.raises(InvalidRecords) as refusal:
        validate_records(batch, parse_batch_header(batch), config, now_ms)
    assert refusal.value.code is ErrorCode.invalid_timestamp
    assert [index for index, _ in refusal.value.record_errors] == outside


def test_an_invalid_timestamp_decides_the_error_code_and_a_missing_key_the_error_of_its_record() -> None:
    config = LogConfig(cleanup_compact=True, message_timestamp_before_max_ms=10)
    records = [Record(1000, b"k", b"v"), Record(1, None, b"v"), Record(1000, None, b"v"), Record(1, b"k", b"v")]
    batch = encode_batch(records)
    with pytest.raises(InvalidRecords) as refusal:
        validate_records(batch, parse_batch_header(batch), config, now_ms=1000)
    assert refusal.value.code is ErrorCode.invalid_timestamp
    assert [(index, message.split()[0]) for index, message in refusal.value.record_errors] == [
        (1, "no"),
        (2, "no"),
        (3, "timestamp"),
    ]


def test_a_response_names_a_bounded_number_of_records() -> None:
    batch = encode_batch([Record(0, None, b"")] * (MAX_RECORD_ERRORS + 1), compression=Compression.zstd)
    config = LogConfig(cleanup_compact=True, message_timestamp_type="LogAppendTime")
    with pytest.raises(InvalidRecords, match=f"{MAX_RECORD_ERRORS} or more of {MAX_RECORD_ERRORS + 1}") as refusal:
        validate_records(batch, parse_batch_header(batch), config, now_ms=0)
    assert len(refusal.value.record_errors) == MAX_RECORD_ERRORS
