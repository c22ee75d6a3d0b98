"""Records of a batch are those that kio, kafka-python and aiokafka read, and the parser survives
any bytes."""

import datetime
import io
from dataclasses import replace

import aiokafka.record.memory_records
import kafka.record.memory_records
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records import schema as kio_schema
from kio.records.readers import read_batch
from kio.records.writers import write_batch
from kio.serial.writers import write_signed_varlong
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from ottla_broker.wire.batch import (
    HEADER_SIZE,
    Compression,
    has_valid_crc,
    iter_batches,
    pack_batch,
    parse_batch_header,
)
from ottla_broker.wire.control_records import (
    ControlRecordType,
    control_record_type,
    encode_end_transaction_marker,
    marker_coordinator_epoch,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, decode_batch, encode_batch, encode_varint, iter_record_spans, iter_records
from tests.unit.records.record_strategies import codecs, record_lists, sparse_batch, timestamps_ms, with_offsets

offsets = st.integers(0, 2**62)


@settings(max_examples=150)
@given(record_lists, codecs, offsets)
def test_encoded_records_decode(given_records: list[Record], codec: Compression, base: int) -> None:
    batch = encode_batch(
        given_records,
        base_offset=base,
        leader_epoch=7,
        compression=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
    )
    header = parse_batch_header(batch)
    assert has_valid_crc(batch, header)
    assert header.size == len(batch)
    assert (header.count, header.last_offset, header.compression) == (
        len(given_records),
        base + len(given_records) - 1,
        codec,
    )
    assert (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence) == (7, 5, 2, 9)
    assert header.max_timestamp == max(record.timestamp_ms for record in given_records)
    assert decode_batch(b"junk" + batch, header, 4) == with_offsets(given_records, base)


@settings(max_examples=100)
@given(record_lists, codecs, offsets)
def test_aiokafka_reads_the_same(given_records: list[Record], codec: Compression, base: int) -> None:
    theirs = aiokafka.record.memory_records.MemoryRecords(
        encode_batch(given_records, base_offset=base, compression=codec)
    )
    batch = theirs.next_batch()
    assert batch.validate_crc()
    seen = [Record(r.timestamp, r.key, r.value, tuple(r.headers), r.offset) for r in batch]
    assert seen == with_offsets(given_records, base)


@settings(max_examples=100)
@given(record_lists, st.sampled_from([Compression.none, Compression.gzip, Compression.lz4]), offsets)
def test_kafka_python_reads_the_same(given_records: list[Record], codec: Compression, base: int) -> None:
    theirs = kafka.record.memory_records.MemoryRecords(encode_batch(given_records, base_offset=base, compression=codec))
    batch = theirs.next_batch()
    assert batch.validate_crc()
    seen = [Record(r.timestamp, r.key, r.value, tuple(r.headers), r.offset) for r in batch]
    assert seen == with_offsets(given_records, base)


@settings(max_examples=100)
@given(record_lists, codecs)
def test_batches_of_aiokafka_decode(given_records: list[Record], codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(2, codec.value, 0, -1, -1, -1, 1 << 24)
    for n, r in enumerate(given_records):
        builder.append(n, r.timestamp_ms, r.key, r.value, list(r.headers))
    batch = bytes(builder.build())
    header = parse_batch_header(batch)
    assert has_valid_crc(batch, header)
    assert decode_batch(batch, header) == with_offsets(given_records)


def kio_record(offset: int, record: Record) -> kio_schema.Record:
    return kio_schema.Record(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(datetime.datetime.fromtimestamp(record.timestamp_ms // 1000, datetime.UTC)),
        offset=i64(offset),
        key=record.key,
        value=record.value,
        headers=tuple(kio_schema.RecordHeader(key=name.encode(), value=value) for name, value in record.headers),
    )


@settings(max_examples=60)
@given(record_lists)
def test_kio_writes_the_same_bytes(given_records: list[Record]) -> None:
    """Timestamps are whole seconds, because kio drops fractions."""
    whole = [replace(r, timestamp_ms=r.timestamp_ms // 1000 * 1000) for r in given_records]
    theirs = io.BytesIO()
    new = kio_schema.NewRecordBatch(
        producer_id=i64(5),
        producer_epoch=i16(2),
        partition_leader_epoch=i32(3),
        base_sequence=i32(9),
        attributes=i16(0),
        records=tuple(kio_record(n, record) for n, record in enumerate(whole)),
    )
    write_batch(theirs, new)
    ours = encode_batch(whole, leader_epoch=3, producer_id=5, producer_epoch=2, base_sequence=9)
    assert theirs.getvalue() == ours
    read, size = read_batch(ours, 0)
    assert size == len(ours)
    assert [(r.offset, r.key, r.value) for r in read.records] == [(n, r.key, r.value) for n, r in enumerate(whole)]


@given(record_lists, timestamps_ms)
def test_log_append_time_is_every_records_timestamp(given_records: list[Record], now_ms: int) -> None:
    batch = encode_batch(given_records, log_append_time_ms=now_ms)
    assert {record.timestamp_ms for record in decode_batch(batch, parse_batch_header(batch))} == {now_ms}
    theirs = aiokafka.record.memory_records.MemoryRecords(batch).next_batch()
    assert {record.timestamp for record in theirs} == {now_ms}


def test_records_after_compaction_keep_their_offsets() -> None:
    batch = sparse_batch([(1, Record(5, b"a", b"1")), (4, Record(3, b"b", None))], count=9, base_offset=100)
    header = parse_batch_header(batch)
    assert [(r.offset, r.timestamp_ms) for r in decode_batch(batch, header)] == [(101, 5), (104, 3)]
    assert header.next_offset == 109


def test_iter_records_reads_every_batch_and_checks_every_crc() -> None:
    data = encode_batch([Record(1, b"a", b"")]) + encode_batch(
        [Record(2, b"b", None)] * 2, base_offset=1, compression=Compression.zstd
    )
    assert [(h.base_offset, r.offset, r.key) for h, r in iter_records(data)] == [
        (0, 0, b"a"),
        (1, 1, b"b"),
        (1, 2, b"b"),
    ]
    broken = bytearray(data)
    broken[-1] ^= 1
    with pytest.raises(KafkaError) as refusal:
        list(iter_records(broken))
    assert refusal.value.code is ErrorCode.corrupt_message


@settings(max_examples=300)
@given(record_lists, st.data())
def test_parser_survives_any_bytes(given_records: list[Record], draw: st.DataObject) -> None:
    batch = bytearray(encode_batch(given_records))
    for _ in range(draw.draw(st.integers(1, 3))):
        batch[draw.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = draw.draw(st.integers(0, 255))
    header = replace(parse_batch_header(batch), count=draw.draw(st.integers(-1, 40)))
    try:
        decode_batch(batch, header)
    except KafkaError as refusal:
        assert refusal.code is ErrorCode.corrupt_message


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_parser_survives_any_payload(payload: bytes, count: int) -> None:
    try:
        found = list(iter_record_spans(payload, count))
    except KafkaError as refusal:
        assert refusal.code is ErrorCode.corrupt_message
    else:
        assert [s[0] for s in found[1:]] == [s[1] for s in found[:-1]], "records lie end to end"


def test_endless_varint_is_rejected() -> None:
    with pytest.raises(KafkaError):
        list(iter_record_spans(b"\xff" * 1_000_000, 1))


def test_undefined_codec_is_unsupported() -> None:
    batch = encode_batch([Record(1, b"", b"")])
    header = replace(parse_batch_header(batch), attributes=6)
    with pytest.raises(KafkaError) as refusal:
        decode_batch(batch, header)
    assert refusal.value.code is ErrorCode.unsupported_compression_type


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_of_every_size_are_written_as_by_kio(value: int) -> None:
    out = io.BytesIO()
    write_signed_varlong(out, i64(value))
    assert encode_varint(value) == out.getvalue()


def test_oversized_batch_is_rejected() -> None:
    batch = encode_batch([Record(1, None, bytes(1 << 20))], compression=Compression.zstd)
    with pytest.raises(KafkaError) as refusal:
        decode_batch(batch, parse_batch_header(batch), limit=1 << 19)
    assert refusal.value.code is ErrorCode.message_too_large


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_decoded_as_encoded(commit: bool) -> None:
    batch = encode_end_transaction_marker(
        commit, 12, producer_id=77, producer_epoch=3, timestamp_ms=1000, base_offset=50
    )
    header = parse_batch_header(batch)
    (marker,) = decode_batch(batch, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    assert control_record_type(marker) is (ControlRecordType.commit if commit else ControlRecordType.abort)
    assert marker_coordinator_epoch(marker) == 12
    assert (marker.key, marker.value) == (b"\0\0\0" + (b"\1" if commit else b"\0"), b"\0\0\0\0\0\x0c")
    theirs = aiokafka.record.memory_records.MemoryRecords(batch).next_batch()
    assert theirs.is_control_batch
    assert theirs.is_transactional


def test_control_records_of_a_later_kafka_are_unknown() -> None:
    assert control_record_type(Record(0, b"\0\0\0\x63", None)) is ControlRecordType.unknown
    with pytest.raises(KafkaError):
        control_record_type(Record(0, b"\0", None))


def test_packing_a_parsed_header_gives_the_same_batch() -> None:
    batch = encode_batch([Record(1, b"k", b"v", (("h", None),))], base_offset=3, compression=Compression.gzip)
    ((_, header),) = iter_batches(batch)
    assert pack_batch(header, memoryview(batch)[HEADER_SIZE:]) == batch
    assert header.crc == crc32c(batch[21:])
