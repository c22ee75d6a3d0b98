"""Records inside a batch, format version 2. Only code that needs single records parses them;
batches move as bytes.

Layout of a record (https://kafka.apache.org/documentation/#record), all lengths zigzag varints:
length of what follows · attributes i8 · timestamp delta varlong · offset delta · key length (−1:
null) and key · value length (−1: null) and value · header count, and for each header key length,
key (UTF-8), value length (−1: null), value.

`iter_record_spans` is the only parser. It decodes varints inline, because loading a large
`__consumer_offsets` spends its time there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Compression,
    has_valid_crc,
    iter_batches,
    pack_batch,
)
from ottla_broker.wire.compression import compress, decompress
from ottla_broker.wire.errors import ErrorCode, KafkaError

# Bytes that one batch's records may decompress to. Clients measure their largest batch before
# compression (max.request.size, 1 MiB by default), so this allows settings of a hundred times that.
DECOMPRESSED_LIMIT: Final = 128 << 20

Headers = tuple[tuple[str, bytes | None], ...]
# (start, end, timestamp delta, offset delta, key, value, position of the headers or 0 without
# headers); positions in the payload.
RecordSpan = tuple[int, int, int, int, bytes | None, bytes | None, int]


@dataclass(slots=True)
class Record:
    """`offset` is absolute in decoded records; encoding assigns offsets itself."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset: int = -1


def estimate_size(record: Record) -> int:
    """About the number of bytes of the record in a batch, before compression."""
    size = len(record.key or b"") + len(record.value or b"") + 16
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 4
    return size


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.none,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One batch, whose records get offsets from `base_offset` on in their order; their own `offset`
    is ignored.

    With `log_append_time_ms` the batch is of type LogAppendTime, and every record is read back with
    that time. Raises ValueError without records.
    """
    if not records:
        raise ValueError("a batch to encode needs at least one record")
    base_timestamp = records[0].timestamp_ms
    payload = bytearray()
    latest = base_timestamp
    for delta, record in enumerate(records):
        timestamp = record.timestamp_ms
        if timestamp > latest:
            latest = timestamp
        write_record(payload, record, timestamp - base_timestamp, delta)
    attributes = (
        compression
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (0 if log_append_time_ms is None else LOG_APPEND_TIME_FLAG)
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=latest if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    return pack_batch(header, compress(compression, payload, level))


def write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Appends one record to a payload (records before compression)."""
    body = bytearray(1)  # attributes: none are defined
    body += encode_varint(timestamp_delta)
    body += encode_varint(offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    body += encode_varint(len(record.headers))
    for name, value in record.headers:
        _append_bytes(body, name.encode("utf-8", "surrogateescape"))
        _append_bytes(body, value)
    out += encode_varint(len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag of −1
    else:
        out += encode_varint(len(data))
        out += data


def encode_varint(value: int) -> bytes:
    """Zigzag varint. Varlong fields differ only in their range."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(0x80))


def decompress_records(data: Buffer, header: BatchHeader, at: int = 0, *, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """The payload of the batch at `at`.

    Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE (see `decompress`),
    UNSUPPORTED_COMPRESSION_TYPE.
    """
    if not header.attributes & COMPRESSION_MASK and header.size <= limit:
        return bytes(memoryview(data)[at + HEADER_SIZE : at + header.size])
    try:
        codec = header.compression
    except ValueError as error:
        raise KafkaError(
            ErrorCode.unsupported_compression_type,
            f"compression codec {header.attributes & COMPRESSION_MASK} is not defined",
        ) from error
    return decompress(codec, memoryview(data)[at + HEADER_SIZE : at + header.size], limit)


def decode_batch(data: Buffer, header: BatchHeader, at: int = 0, *, limit: int = DECOMPRESSED_LIMIT) -> list[Record]:
    """The batch's records with absolute offsets and timestamps. Does not check the CRC.

    Raises KafkaError as `decompress_records` does.
    """
    payload = decompress_records(data, header, at, limit=limit)
    base_offset = header.base_offset
    if header.has_log_append_time:
        append_time_ms = header.max_timestamp
        return [
            Record(
                append_time_ms,
                key,
                value,
                parse_headers(payload, headers_at, end) if headers_at else (),
                base_offset + delta,
            )
            for _, end, _, delta, key, value, headers_at in iter_record_spans(payload, header.count)
        ]
    base_timestamp = header.base_timestamp
    return [
        Record(
            base_timestamp + later,
            key,
            value,
            parse_headers(payload, headers_at, end) if headers_at else (),
            base_offset + delta,
        )
        for _, end, later, delta, key, value, headers_at in iter_record_spans(payload, header.count)
    ]


def iter_records(data: Buffer) -> Iterator[tuple[BatchHeader, Record]]:
    """Yields every record of every batch, control records too. Raises KafkaError: CORRUPT_MESSAGE,
    also for a wrong CRC; MESSAGE_TOO_LARGE and UNSUPPORTED_COMPRESSION_TYPE as `decompress_records`
    does.
    """
    for at, header in iter_batches(data):
        if not has_valid_crc(data, header, at):
            raise KafkaError(ErrorCode.corrupt_message, f"CRC of the batch at offset {header.base_offset} is wrong")
        for record in decode_batch(data, header, at):
            yield header, record


def iter_record_spans(payload: bytes, count: int) -> Iterator[RecordSpan]:
    """Yields the position and the main fields of each of `count` records in a payload.

    Raises KafkaError: CORRUPT_MESSAGE unless the payload has exactly `count` valid records. Headers
    are checked by `parse_headers` only.
    """
    at, size = 0, len(payload)
    try:
        for _ in range(count):
            start = at
            n = payload[at]
            at += 1
            if n >= 0x80:
                if (more := payload[at]) < 0x80:
                    n = n & 0x7F | more << 7
                    at += 1
                else:
                    n, at = _read_raw_varint(payload, at - 1)
            length = (n >> 1) ^ -(n & 1)
            end = at + length
            if end > size or length < 0:
                raise _corrupt(f"a record of {length} bytes at {start} does not fit {size}")
            at += 1  # attributes

            n = payload[at]
            at += 1
            if n >= 0x80:
                if (more := payload[at]) < 0x80:
                    n = n & 0x7F | more << 7
                    at += 1
                else:
                    n, at = _read_raw_varint(payload, at - 1)
            timestamp_delta = (n >> 1) ^ -(n & 1)

            n = payload[at]
            at += 1
            if n >= 0x80:
                if (more := payload[at]) < 0x80:
                    n = n & 0x7F | more << 7
                    at += 1
                else:
                    n, at = _read_raw_varint(payload, at - 1)
            offset_delta = (n >> 1) ^ -(n & 1)

            n = payload[at]
            at += 1
            if n >= 0x80:
                if (more := payload[at]) < 0x80:
                    n = n & 0x7F | more << 7
                    at += 1
                else:
                    n, at = _read_raw_varint(payload, at - 1)
            if n & 1:
                if n != 1:
                    raise _corrupt(f"a key of negative length at {at}")
                key = None
            else:
                n = at + (n >> 1)
                key = payload[at:n]
                at = n

            n = payload[at]
            at += 1
            if n >= 0x80:
                if (more := payload[at]) < 0x80:
                    n = n & 0x7F | more << 7
                    at += 1
                else:
                    n, at = _read_raw_varint(payload, at - 1)
            if n & 1:
                if n != 1:
                    raise _corrupt(f"a value of negative length at {at}")
                value = None
            else:
                n = at + (n >> 1)
                value = payload[at:n]
                at = n

            if payload[at]:  # a header count other than 0
                if at >= end:
                    raise _corrupt(f"a record's length says it ends at {end}, its value ends at {at}")
                yield start, end, timestamp_delta, offset_delta, key, value, at
                at = end
            else:
                at += 1
                if at != end:
                    raise _corrupt(f"a record's length says it ends at {end}, its fields end at {at}")
                yield start, end, timestamp_delta, offset_delta, key, value, 0
    except IndexError as error:
        raise _corrupt(f"cut off at {size}, in one of {count} records") from error
    if at != size:
        raise _corrupt(f"{size - at} bytes follow the last of {count} records")


def encode_with_timestamp_delta(payload: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The record at `span` with another timestamp delta and otherwise the same bytes."""
    at, end = span[0], span[1]
    while payload[at] >= 0x80:  # skips the length
        at += 1
    at += 2
    while payload[at] >= 0x80:  # skips the timestamp delta
        at += 1
    body = b"\0" + encode_varint(timestamp_delta) + payload[at + 1 : end]
    return encode_varint(len(body)) + body


def parse_headers(payload: bytes, at: int, end: int) -> Headers:
    """Headers of the record that ends at `end`; their count is at `at`. Raises KafkaError:
    CORRUPT_MESSAGE.
    """
    try:
        count, at = _read_varint(payload, at)
        if count < 0 or count > end - at:
            raise _corrupt(f"{count} headers in {end - at} bytes")
        found: list[tuple[str, bytes | None]] = []
        for _ in range(count):
            length, at = _read_varint(payload, at)
            if length < 0:
                raise _corrupt("a header's name is null")
            # No client or broker checks that names are UTF-8: other bytes survive decoding and
            # encoding.
            name = payload[at : at + length].decode("utf-8", "surrogateescape")
            length, at = _read_varint(payload, at + length)
            if length < -1:
                raise _corrupt(f"a header's value of {length} bytes")
            found.append((name, None if length < 0 else payload[at : at + length]))
            at += max(length, 0)
    except IndexError as error:
        raise _corrupt("cut off in a record's headers") from error
    if at != end:
        raise _corrupt(f"headers end at {at}, their record at {end}")
    return tuple(found)


def _read_varint(payload: bytes, at: int) -> tuple[int, int]:
    """(value, position after it) of a zigzag varint of at most ten bytes."""
    raw, at = _read_raw_varint(payload, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_raw_varint(payload: bytes, at: int) -> tuple[int, int]:
    """(value before zigzag, position after it)."""
    raw = shift = 0
    while (byte := payload[at]) >= 0x80:
        raw |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if shift > 63:
            raise _corrupt(f"a varint of more than ten bytes at {at}")
    return raw | byte << shift, at + 1


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"invalid records: {why}")
