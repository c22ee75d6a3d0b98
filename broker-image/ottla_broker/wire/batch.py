"""The header of a record batch, format version 2: 61 bytes before the records.

Layout (https://kafka.apache.org/documentation/#recordbatch): base offset i64 · batch length i32 (of
what follows it) · partition leader epoch i32 · magic i8 · CRC-32C u32 (of what follows it) ·
attributes i16 · last offset delta i32 · base timestamp i64 · max timestamp i64 · producer id i64 ·
producer epoch i16 · base sequence i32 · record count i32.

Base offset and leader epoch lie outside the CRC, so a leader stamps them in place and the records
stay as the client sent them.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla_broker.wire.crc import crc32c
from ottla_broker.wire.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_COVERED: Final = struct.Struct(">hiqqqhii")  # from the attributes on: covered by the CRC
_UNCOVERED: Final = struct.Struct(">qiibI")  # before the attributes, with the CRC itself
HEADER_SIZE: Final = HEADER.size  # 61
LOG_OVERHEAD: Final = 12  # bytes that `batch length` does not count: base offset and the length itself
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21  # first byte that the CRC covers: the attributes
_STAMP: Final = struct.Struct(">qii")  # base offset, batch length, leader epoch
_FRONT: Final = struct.Struct(">qi")  # base offset, batch length

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


@dataclass(slots=True)
class BatchHeader:
    """One batch's header. `size` is the whole batch in bytes; timestamps are milliseconds.

    Treat it as immutable (use `dataclasses.replace`). It is not frozen because that would make
    creation three times as slow, and loading a log creates one for every batch.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; wraps from 2³¹−1 to 0.

        NO_SEQUENCE without an idempotent producer.
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF


def parse_batch_header(data: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`. Raises struct.error if fewer than 61 bytes are left."""
    return BatchHeader(*HEADER.unpack_from(data, at))


def has_valid_crc(data: Buffer, header: BatchHeader, at: int = 0) -> bool:
    return bool(crc32c(memoryview(data)[at + ATTRIBUTES_OFFSET : at + header.size]) == header.crc)


def stamp_offset_and_epoch(data: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    """Writes base offset and partition leader epoch in place; the CRC does not cover them."""
    length = _FRONT.unpack_from(data, at)[1]
    _STAMP.pack_into(data, at, base_offset, length, leader_epoch)


def pack_batch(header: BatchHeader, records: Buffer) -> bytes:
    """A batch of `header`, with its length and CRC computed, and `records` as they are stored
    (maybe compressed).
    """
    covered = _COVERED.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    crc = crc32c(records, crc32c(covered))
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    front = _UNCOVERED.pack(header.base_offset, length, header.leader_epoch, header.magic, crc)
    return b"".join((front, covered, records))


def iter_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of every batch. Raises KafkaError: CORRUPT_MESSAGE if a batch is
    incomplete or its length invalid. Checks neither its format version nor its CRC.
    """
    at, end = 0, len(data)
    while at < end:
        if end - at < HEADER_SIZE:
            raise KafkaError(
                ErrorCode.corrupt_message, f"{end - at} bytes left at {at}; a batch header takes {HEADER_SIZE}"
            )
        header = parse_batch_header(data, at)
        if header.length < HEADER_SIZE - LOG_OVERHEAD or at + header.size > end:
            raise KafkaError(
                ErrorCode.corrupt_message, f"batch length {header.length} at {at} does not fit {end - at} bytes"
            )
        yield at, header
        at += header.size


def drop_partial_batch(records: bytes) -> bytes:
    """`records` without a batch at the end that a size limit has cut off.

    Kafka sends such batches, Ottla does not. Raises KafkaError: CORRUPT_MESSAGE.
    """
    return records[: find_last_batch(records)[1]]


def find_last_batch(records: Buffer) -> tuple[int, int]:
    """Positions of the last whole batch and of its end; both are 0 without one. Only lengths are
    read: a response may have thousands of batches. Raises KafkaError: CORRUPT_MESSAGE.
    """
    last = end = 0
    total = len(records)
    while total - end >= HEADER_SIZE:
        size = _FRONT.unpack_from(records, end)[1] + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise KafkaError(ErrorCode.corrupt_message, f"the batch at {end} has {size} bytes, less than its header")
        if size > total - end:
            break
        last, end = end, end + size
    return last, end
