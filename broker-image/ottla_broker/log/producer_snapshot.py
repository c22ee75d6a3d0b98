"""`.snapshot`: the producers of a partition just before the offset in the file's name, in Kafka's ProducerSnapshot format, version 1.

version i16 · CRC-32C u32 of what follows · number of entries i32 · entries of 50 bytes: producer id i64, epoch i16, last sequence i32,
last offset i64, offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64 (-1: none).
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from crc32c import crc32c

from ottla_broker.log.producer_state import NO_OFFSET, BatchMetadata, ProducerStateEntry

VERSION: Final = 1
_FRONT: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class CorruptProducerSnapshot(ValueError):
    """The file is no snapshot of a version we know, or its CRC is wrong. An older snapshot or the log itself has to serve."""


def encode_producer_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    entries = [_entry(producer) for producer in producers]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _FRONT.pack(VERSION, crc32c(body)) + body


def _entry(producer: ProducerStateEntry) -> bytes:
    last = producer.batches[-1] if producer.batches else BatchMetadata(-1, NO_OFFSET, 0, -1)
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.current_txn_first_offset,
    )


def decode_producer_snapshot(data: bytes, now_ms: int) -> list[ProducerStateEntry]:
    """Producers as of the snapshot; they count as seen at `now_ms`. Raises BadSnapshot."""
    if len(data) < _FRONT.size + _COUNT.size:
        raise CorruptProducerSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _FRONT.unpack_from(data)
    if version != VERSION:
        raise CorruptProducerSnapshot(f"producer snapshot of version {version}; only {VERSION} is known")
    body = memoryview(data)[_FRONT.size :]
    if crc32c(body) != crc:
        raise CorruptProducerSnapshot("the CRC of the producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptProducerSnapshot(f"{count} producers announced in {len(body)} bytes")
    return [_producer(fields, now_ms) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _producer(fields: tuple[int, ...], now_ms: int) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction_start = fields
    producer = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction_start, seen_ms=now_ms)
    if last_offset >= 0:
        producer.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        producer.recalled = False
    return producer
