"""`.snapshot` files: the producers of a partition just before the offset in the file's name.

Kafka's ProducerSnapshot format, version 1: version i16 · CRC-32C u32 of what follows · number of
entries i32 · entries of 46 bytes: producer id i64, epoch i16, last sequence i32, last offset i64,
offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64
(−1: none).

A partition has one where each segment starts and one at the recovery point or the log's end.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk, write_file
from ottla_broker.log.producer_state import NO_OFFSET, BatchMetadata, ProducerStateEntry
from ottla_broker.wire.crc import crc32c

VERSION: Final = 1
_FRONT: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_NO_BATCH: Final = BatchMetadata(-1, NO_OFFSET, 0, -1)


class CorruptProducerSnapshot(ValueError):
    """The file is not a snapshot of a known version, or its CRC is wrong. An older snapshot or the
    log itself replaces it.
    """


def encode_producer_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    entries = [_encode_entry(producer) for producer in producers]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _FRONT.pack(VERSION, crc32c(body)) + body


def _encode_entry(producer: ProducerStateEntry) -> bytes:
    last = producer.batches[-1] if producer.batches else _NO_BATCH
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
    """The producers of a snapshot. `now_ms`: the time of their last append, which the snapshot does
    not have. Raises CorruptProducerSnapshot.
    """
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
    return [_decode_entry(fields, now_ms) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _decode_entry(fields: tuple[int, ...], now_ms: int) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
    entry = ProducerStateEntry(
        producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset, last_append_ms=now_ms
    )
    if last_offset >= 0:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        entry.has_all_batches = False
    return entry


class ProducerSnapshots:
    """The snapshot files of one partition, by offset."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return file_names.segment_file(self._directory, offset, file_names.SNAPSHOT)

    def newest_up_to(self, offset: int) -> int | None:
        at = bisect_right(self.offsets, offset)
        return self.offsets[at - 1] if at else None

    def read(self, offset: int) -> bytes:
        return self._disk.read_file(self.path(offset))

    def write(self, offset: int, data: bytes) -> None:
        """Writes without syncing: a torn snapshot is detected by its CRC, and the one before it is
        used instead."""
        write_file(self._disk, self.path(offset), data)
        self.add(offset)

    def add(self, offset: int) -> None:
        """Registers the file for `offset`, which has been written."""
        at = bisect_left(self.offsets, offset)
        if self.offsets[at : at + 1] != [offset]:
            insort(self.offsets, offset)

    def remove(self, offset: int) -> None:
        self._disk.remove(self.path(offset))
        self.offsets.remove(offset)

    def remove_above(self, offset: int) -> None:
        for above in [known for known in self.offsets if known > offset]:
            self.remove(above)

    def keep_only(self, bases: Collection[int]) -> None:
        """Removes the snapshots that are at no segment's base, except the newest one."""
        for other in [known for known in self.offsets[:-1] if known not in bases]:
            self.remove(other)
