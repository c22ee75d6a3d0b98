"""Validation and stamping of a batch by the leader before the append (Kafka's LogValidator).

Checks read the header alone; `log.record_validation` has those of single records. Each refusal is a
KafkaError with the code that Kafka's clients expect for it. A topic with the defaults of
`compression.type`, `message.timestamp.*` and `cleanup.policy` never decompresses a valid batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Never

from ottla_broker.log.config import LogConfig
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.log.record_validation import validate_records
from ottla_broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Compression,
    pack_batch,
)
from ottla_broker.wire.compression import compress
from ottla_broker.wire.crc import crc32c
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import decompress_records, iter_record_spans

MAGIC: Final = 2
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_LAST_CODEC: Final = max(Compression)
_CODECS: Final = {
    "uncompressed": Compression.none,
    "gzip": Compression.gzip,
    "snappy": Compression.snappy,
    "lz4": Compression.lz4,
    "zstd": Compression.zstd,
}

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""A batch header as `wire.batch.HEADER` unpacks it; the hot path constructs no object of it."""


@dataclass(slots=True)
class LogAppendInfo:
    """The result of an append. Offsets are inclusive.

    `log_append_time_ms` is −1 unless the topic has LogAppendTime. `is_duplicate`: nothing was
    written; offsets and `log_append_time_ms` are those of the stored batch, whatever its timestamp
    type. `byte_count`: bytes written to the log.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    record_count: int
    byte_count: int


def read_header_fields(records: Buffer, size: int) -> HeaderFields:
    """The header of the first batch of `records`, which are `size` bytes. Raises KafkaError:
    CORRUPT_MESSAGE; INVALID_RECORD when the bytes are no whole batch, as with the short messages of
    formats 0 and 1."""
    if size < HEADER_SIZE:
        raise KafkaError(ErrorCode.invalid_record, f"{size} bytes; a batch header takes {HEADER_SIZE}")
    fields: HeaderFields = HEADER.unpack_from(records)
    if not _MIN_LENGTH <= fields[1] <= size - LOG_OVERHEAD:
        code = ErrorCode.corrupt_message if 0 <= fields[1] < _MIN_LENGTH else ErrorCode.invalid_record
        raise KafkaError(code, f"batch length {fields[1]} in {size} bytes")
    return fields


def refuse_magic(magic: int) -> Never:
    """Raises KafkaError: CORRUPT_MESSAGE; INVALID_RECORD for the message formats 0 and 1."""
    if magic in (0, 1):
        raise KafkaError(ErrorCode.invalid_record, f"message format {magic} is not supported, only {MAGIC} is")
    raise KafkaError(ErrorCode.corrupt_message, f"magic byte {magic} is unknown, {MAGIC} is expected")


def validate_crc(data: Buffer, at: int, fields: HeaderFields) -> None:
    """Checks the magic byte first: the CRC's place depends on it. Raises KafkaError:
    CORRUPT_MESSAGE; INVALID_RECORD for the message formats 0 and 1."""
    if fields[3] != MAGIC:
        refuse_magic(fields[3])
    computed = crc32c(memoryview(data)[at + ATTRIBUTES_OFFSET : at + fields[1] + LOG_OVERHEAD])
    if computed != fields[4]:
        raise KafkaError(ErrorCode.corrupt_message, f"CRC {fields[4]:#010x} in the header, {computed:#010x} computed")


def validate_base_offset(fields: HeaderFields) -> None:
    """Raises KafkaError: INVALID_RECORD if the offsets in a client's batch do not start at 0."""
    if fields[0] != 0:
        raise KafkaError(ErrorCode.invalid_record, f"base offset {fields[0]}; a producer's batch starts at 0")


def validate_size(fields: HeaderFields, config: LogConfig) -> None:
    """Raises KafkaError: MESSAGE_TOO_LARGE."""
    size = fields[1] + LOG_OVERHEAD
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large, f"a batch of {size} bytes; max.message.bytes allows {config.max_message_bytes}"
        )


def validate_client_batch(data: Buffer, fields: HeaderFields, config: LogConfig, now_ms: int) -> None:
    """Validates the header fields of the batch `data` that only clients can get wrong. Raises
    KafkaError: INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE; InvalidRecords.
    """
    _, _, _, _, _, attributes, delta, _, max_timestamp, producer_id, _, base_sequence, count = fields
    if count < 1 or count != delta + 1:
        raise KafkaError(ErrorCode.invalid_record, f"{count} records with last offset delta {delta}")
    if attributes & CONTROL_FLAG:
        raise KafkaError(ErrorCode.invalid_record, "clients may not write control batches")
    if attributes & COMPRESSION_MASK > _LAST_CODEC:
        raise KafkaError(ErrorCode.unsupported_compression_type, f"compression codec {attributes & COMPRESSION_MASK}")
    if producer_id >= 0:
        if base_sequence < 0:
            raise KafkaError(ErrorCode.invalid_record, f"producer {producer_id} sent base sequence {base_sequence}")
        if producer_id >= FIRST_RESERVED_PRODUCER_ID:
            raise KafkaError(
                ErrorCode.invalid_record, f"producer ids from {FIRST_RESERVED_PRODUCER_ID} on are reserved"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise KafkaError(ErrorCode.invalid_record, "a transactional batch without a producer id")
    if attributes & LOG_APPEND_TIME_FLAG or (
        max_timestamp > now_ms + config.message_timestamp_after_max_ms and config.message_timestamp_type == "CreateTime"
    ):
        validate_records(data, BatchHeader(*fields), config, now_ms)  # names the records
        raise KafkaError(
            ErrorCode.invalid_timestamp, f"the header's max timestamp is {max_timestamp}, later than every record's"
        )


def split_whole_batches(data: Buffer) -> tuple[int, Sequence[tuple[int, HeaderFields]]]:
    """(size in bytes, [(position, header)]) of the whole batches in `data`, which comes from a
    leader or a coordinator. The last batch may be cut off.

    Raises KafkaError: CORRUPT_MESSAGE.
    """
    at, end = 0, len(data)
    found: list[tuple[int, HeaderFields]] = []
    while end - at >= HEADER_SIZE:
        fields: HeaderFields = HEADER.unpack_from(data, at)
        if fields[1] < _MIN_LENGTH:
            raise KafkaError(ErrorCode.corrupt_message, f"batch length {fields[1]} at {at}")
        if at + fields[1] + LOG_OVERHEAD > end:
            break
        found.append((at, fields))
        at += fields[1] + LOG_OVERHEAD
    return at, found


def split_leader_batches(data: Buffer, end: int, leader_epoch: int) -> tuple[int, Sequence[tuple[int, HeaderFields]]]:
    """Returns the batches that a follower appends at offset `end`, up to the first batch of a
    leader newer than `leader_epoch`. Otherwise like `split_whole_batches`. Raises KafkaError:
    CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE.
    """
    size, found = split_whole_batches(data)
    for number, (at, fields) in enumerate(found):
        validate_crc(data, at, fields)
        if fields[0] < end:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"the leader sent offset {fields[0]}; the log ends at {end}"
            )
        if fields[2] > leader_epoch:
            return at, found[:number]
        end = fields[0] + fields[6] + 1
    return size, found


# --- conversion


def compression_level(codec: Compression, config: LogConfig) -> int | None:
    """The topic's `compression.<codec>.level`; None for codecs without levels."""
    match codec:
        case Compression.gzip:
            return config.compression_gzip_level
        case Compression.lz4:
            return config.compression_lz4_level
        case Compression.zstd:
            return config.compression_zstd_level
        case _:
            return None


def needs_conversion(header: BatchHeader, config: LogConfig) -> bool:
    """True if the topic's settings change this batch's bytes beyond base offset and leader
    epoch."""
    if config.message_timestamp_type == "LogAppendTime" or header.has_log_append_time:
        return True
    return _codec_to_change_to(header, config) is not None


def _codec_to_change_to(header: BatchHeader, config: LogConfig) -> Compression | None:
    """None: the batch keeps its codec. Control batches stay as their coordinator wrote them."""
    codec = _CODECS.get(config.compression_type)
    return None if header.is_control or codec == header.attributes & COMPRESSION_MASK else codec


def convert_batch(data: Buffer, header: BatchHeader, config: LogConfig, *, now_ms: int) -> Buffer:
    """The batch as the topic's settings require it, unchanged if they require no change.

    It gets the topic's codec. With LogAppendTime the attributes and the largest timestamp change
    and the records do not: readers take the batch's time for each of them. The CRC covers all of
    that and is recomputed.

    Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE; UNSUPPORTED_COMPRESSION_TYPE when the
    records do not decompress.
    """
    if not needs_conversion(header, config):
        return memoryview(data)[: header.size]
    attributes, max_timestamp = header.attributes, header.max_timestamp
    if config.message_timestamp_type == "LogAppendTime":
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = now_ms
    elif attributes & LOG_APPEND_TIME_FLAG:
        # The topic sets the timestamp type, not the producer: the records' own times count again.
        attributes &= ~LOG_APPEND_TIME_FLAG
        spans = iter_record_spans(decompress_records(data, header), header.count)
        max_timestamp = header.base_timestamp + max((span[2] for span in spans), default=0)
    records: Buffer
    codec = _codec_to_change_to(header, config)
    if codec is None:
        records = memoryview(data)[HEADER_SIZE : header.size]
    else:
        records = compress(codec, decompress_records(data, header), compression_level(codec, config))
        attributes = attributes & ~COMPRESSION_MASK | codec
    return pack_batch(replace(header, attributes=attributes, max_timestamp=max_timestamp), records)
