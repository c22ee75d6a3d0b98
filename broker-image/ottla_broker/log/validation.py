"""What a leader asks of a batch before it writes it, by the header alone: records stay opaque.

Each refusal is a KafkaError with the code that Kafka's clients expect for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from ottla_broker.log.config import LogConfig
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
    Buffer,
    Compression,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError

MAGIC: Final = 2
_SMALLEST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_LAST_CODEC: Final = max(Compression)

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""A batch header as `wire.batch.HEADER` unpacks it; the hot path makes no object of it."""


@dataclass(slots=True)
class LogAppendInfo:
    """What an append did. Offsets inclusive; `log_append_time_ms` is -1 unless the topic has LogAppendTime; `log_start`: the log's start
    offset; `duplicate`: nothing was written, the offsets are those of the first time; `bytes`: written to the log."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    batch_count: int
    record_count: int
    byte_count: int


def fields_at(data: Buffer, at: int, end: int) -> HeaderFields:
    """The header at `at` of a batch that fits below `end`. KafkaError: INVALID_RECORD when no whole batch is there (as
    with the short messages of the formats of old), CORRUPT_MESSAGE."""
    if end - at < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.invalid_record, f"{end - at} bytes are left at {at}; a batch header takes {HEADER_SIZE}"
        )
    fields: HeaderFields = HEADER.unpack_from(data, at)
    if not _SMALLEST_LENGTH <= fields[1] <= end - at - LOG_OVERHEAD:
        code = ErrorCode.corrupt_message if 0 <= fields[1] < _SMALLEST_LENGTH else ErrorCode.invalid_record
        raise KafkaError(code, f"batch length {fields[1]} at {at}; {end - at} bytes are left")
    return fields


def validate_crc(data: Buffer, at: int, fields: HeaderFields) -> None:
    """Magic first, as the CRC's place depends on it. KafkaError: INVALID_RECORD for the formats of old, CORRUPT_MESSAGE."""
    magic = fields[3]
    if magic != MAGIC:
        if magic in (0, 1):
            raise KafkaError(ErrorCode.invalid_record, f"message format {magic}; only {MAGIC} is taken")
        raise KafkaError(ErrorCode.corrupt_message, f"magic byte {magic}; only {MAGIC} is known")
    computed = crc32c(memoryview(data)[at + ATTRIBUTES_OFFSET : at + fields[1] + LOG_OVERHEAD])
    if computed != fields[4]:
        raise KafkaError(
            ErrorCode.corrupt_message, f"the batch says CRC {fields[4]:#010x}, its bytes give {computed:#010x}"
        )


def check_from_zero(fields: HeaderFields) -> None:
    """Of a client's batch, before its size and its CRC are looked at. KafkaError: INVALID_RECORD."""
    if fields[0] != 0:
        raise KafkaError(ErrorCode.invalid_record, f"offsets from {fields[0]} on; a producer's batch counts from 0")


def check_size(fields: HeaderFields, config: LogConfig) -> None:
    size = fields[1] + LOG_OVERHEAD
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large, f"a batch of {size} bytes; max.message.bytes allows {config.max_message_bytes}"
        )


def no_segment_holds(size: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.record_list_too_large, f"a batch of {size} bytes; segment.bytes allows {config.segment_bytes}"
    )


def validate_client_batch(fields: HeaderFields, config: LogConfig, now_ms: int) -> None:
    """What only a client can get wrong. KafkaError: INVALID_RECORD, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE."""
    _, _, _, _, _, attributes, delta, base_timestamp, max_timestamp, producer_id, _, base_sequence, count = fields
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
                ErrorCode.invalid_record, f"producer ids from {FIRST_RESERVED_PRODUCER_ID} on are given to nobody"
            )
    elif attributes & TRANSACTIONAL_FLAG:
        raise KafkaError(ErrorCode.invalid_record, "a transactional batch without a producer id")
    if attributes & LOG_APPEND_TIME_FLAG:
        raise KafkaError(ErrorCode.invalid_timestamp, "producers may not set the timestamp type LogAppendTime")
    if config.message_timestamp_type == "CreateTime":
        _check_timestamps(base_timestamp, max_timestamp, config, now_ms)


def _check_timestamps(base: int, largest: int, config: LogConfig, now_ms: int) -> None:
    if largest > now_ms + config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamp {largest} is {largest - now_ms} ms ahead of the broker; message.timestamp.after.max.ms allows"
            f" {config.message_timestamp_after_max_ms}",
        )
    if 0 <= base < now_ms - config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamp {base} is {now_ms - base} ms old; message.timestamp.before.max.ms allows"
            f" {config.message_timestamp_before_max_ms}",
        )


def split_whole_batches(data: Buffer) -> tuple[int, Sequence[tuple[int, HeaderFields]]]:
    """(bytes, [(position, header)]) of the whole batches at the front of what a leader sent: it may cut the last one off."""
    at, end = 0, len(data)
    found: list[tuple[int, HeaderFields]] = []
    while end - at >= HEADER_SIZE:
        fields: HeaderFields = HEADER.unpack_from(data, at)
        if fields[1] < _SMALLEST_LENGTH:
            raise KafkaError(ErrorCode.corrupt_message, f"batch length {fields[1]} at {at}")
        if at + fields[1] + LOG_OVERHEAD > end:
            break
        found.append((at, fields))
        at += fields[1] + LOG_OVERHEAD
    return at, found


def from_leader(data: Buffer, end: int, leader_epoch: int) -> tuple[int, Sequence[tuple[int, HeaderFields]]]:
    """(bytes, [(position, header)]) of what a follower takes: whole batches from offset `end` on, none of a newer leader than the one that
    was asked. KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE."""
    size, found = split_whole_batches(data)
    for number, (at, fields) in enumerate(found):
        validate_crc(data, at, fields)
        if fields[0] < end:
            raise KafkaError(
                ErrorCode.offset_out_of_range, f"a batch at offset {fields[0]} came; the log ends at {end}"
            )
        if fields[2] > leader_epoch:
            return at, found[:number]
        end = fields[0] + fields[6] + 1
    return size, found
