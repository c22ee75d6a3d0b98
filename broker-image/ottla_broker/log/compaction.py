"""Compaction of batches, without files: which records of a compacted topic stay, and what their
batches become.

It takes two passes over the log, as Kafka's cleaner does. The first maps every key in the dirty
part to its newest offset (`OffsetMap`). The second (`CompactionFilter`) goes through all batches
from the log's start to the last mapped offset and removes:

- records whose key has a newer offset, and records without a key;
- all records of an aborted transaction; its marker, and that of a transaction of which nothing is
  left, one delete.retention.ms later;
- tombstones (null values), one delete.retention.ms after the first cleaning that kept them
  (KIP-534): that cleaning writes the delete horizon into the batch (attribute bit 6, base
  timestamp), the first one past it removes them.

Offsets never change, nor do a batch's base offset, last offset and base sequence. The last batch of
every active producer stays, empty if need be: so its state can be rebuilt from the cleaned log. So
does the last batch of every new segment: a hole between two segments would look like a loss.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ottla_broker.log.config import MAX_INT64, LogConfig
from ottla_broker.log.indexes import AbortedTransaction
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.log.validation import compression_level
from ottla_broker.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    pack_batch,
)
from ottla_broker.wire.compression import compress
from ottla_broker.wire.control_records import ControlRecordType, control_record_type
from ottla_broker.wire.digests import compute_blake2b
from ottla_broker.wire.records import (
    RecordSpan,
    decode_batch,
    decompress_records,
    encode_with_timestamp_delta,
    iter_record_spans,
)

BYTES_PER_KEY: Final = 220
"""Memory of one key in an `OffsetMap`, measured: key, offset, and their share of the table while it
grows."""
_MAX_PLAIN_KEY: Final = 32


class OffsetMap:
    """The newest offset of each key, up to `capacity` keys. `latest`: the last offset that is
    mapped.

    A long key is represented by 33 bytes, which no short key has: its BLAKE2b-256 digest and a
    zero.
    """

    __slots__ = ("_offsets", "capacity", "first_dirty", "latest")

    def __init__(self, buffer_bytes: int, first_dirty: int) -> None:
        self.capacity = max(1, buffer_bytes // BYTES_PER_KEY)
        self.first_dirty = first_dirty
        self.latest = first_dirty - 1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put_keys(self, batch: Buffer, header: BatchHeader) -> bool:
        """Maps a data batch's keys from the first dirty offset on. False, with nothing mapped, when
        they might not fit.

        The first batch always fits, so that every cleaning makes progress.
        """
        offsets = self._offsets
        if offsets and len(offsets) + header.count > self.capacity:
            return False
        base, first_dirty = header.base_offset, self.first_dirty
        for _, _, _, delta, key, _, _ in iter_record_spans(decompress_records(batch, header), header.count):
            if key is not None and base + delta >= first_dirty:
                offsets[key if len(key) <= _MAX_PLAIN_KEY else _digest(key)] = base + delta
        return True

    def newest_offset(self, key: bytes) -> int:
        """−1 when the key is not in the dirty part."""
        return self._offsets.get(key if len(key) <= _MAX_PLAIN_KEY else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return compute_blake2b(key, 32) + b"\0"


class CleanedTransactions:
    """The transactions of which a pass has read a batch: Kafka's CleanedTransactionMetadata.

    `aborted`: from the transaction indexes, at least all whose records or markers the pass may
    read. `kept`: aborted ones whose marker stays, for the new segment's transaction index.
    """

    __slots__ = ("_aborted", "_committed", "_next", "_upcoming", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        # By producer: its aborted transaction, and whether a batch of it was read.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers with a committed transaction of which a batch was read.
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Returns whether the batch belongs to an aborted transaction."""
        if not header.attributes & TRANSACTIONAL_FLAG:
            return False
        self._begin_up_to(header.last_offset)
        found = self._aborted.get(header.producer_id)
        if found is None or found[0].last_offset < header.base_offset:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = found[0], True
        return True

    def on_marker(self, header: BatchHeader, kind: ControlRecordType) -> bool:
        """Returns whether nothing is left of the transaction that the marker ends, so that it may
        be removed."""
        self._begin_up_to(header.last_offset)
        if kind is ControlRecordType.abort:
            transaction, was_read = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and was_read:
                self.kept.append(transaction)
            return not was_read
        if kind is ControlRecordType.commit:
            was_read = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_read
        return False

    def on_kept_marker(self, header: BatchHeader, kind: ControlRecordType) -> None:
        """Called for a marker that stays whatever is left of its transaction."""
        self._begin_up_to(header.last_offset)
        self._committed.discard(header.producer_id)
        if kind is ControlRecordType.abort and (found := self._aborted.pop(header.producer_id, None)) is not None:
            self.kept.append(found[0])

    def _begin_up_to(self, offset: int) -> None:
        upcoming = self._upcoming
        while self._next < len(upcoming) and upcoming[self._next].first_offset <= offset:
            transaction = upcoming[self._next]
            known = self._aborted.get(transaction.producer_id)
            # A transaction whose marker the pass does not read, because the pass starts after it,
            # is replaced by the producer's next.
            if known is None or known[0].last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction, False
            self._next += 1


class LastRecord(NamedTuple):
    """The record that stays of an active producer: the last offset of its last data batch, or −1
    when only a marker is left.
    """

    last_data_offset: int
    epoch: int


@dataclass(slots=True)
class CleanerStats:
    """Records and bytes that a cleaning read and kept."""

    records_read: int = 0
    bytes_read: int = 0
    records_kept: int = 0
    bytes_kept: int = 0


@dataclass(slots=True)
class CompactionFilter:
    """The second pass, batch by batch in the log's order.

    `last_records`: by producer id. `ends`: offsets at which the cleaning or one of the segments
    that it writes ends; the batch before each of them stays, empty if need be.
    """

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_records: Mapping[int, LastRecord]
    config: LogConfig
    ends: Collection[int]
    now_ms: int
    stats: CleanerStats = field(default_factory=CleanerStats)

    def filter_batch(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """Returns the batch as it was, or with fewer records, maybe none; or None if the batch is
        removed. Raises KafkaError when its records do not parse.
        """
        stats = self.stats
        stats.records_read += header.count
        stats.bytes_read += header.size
        if header.base_offset > self.offsets.latest:
            self._observe_later_batch(batch, header)
            kept: Buffer | None = batch
            count = header.count
        elif header.is_control:
            kept, count = self._filter_control(batch, header)
        else:
            kept, count = self._filter_data(batch, header)
        if kept is not None:
            stats.records_kept += count
            stats.bytes_kept += len(kept)
        return kept

    def _observe_later_batch(self, batch: Buffer, header: BatchHeader) -> None:
        """Called for a batch after the mapped offsets, which stays unchanged. It may end a
        transaction that began before.
        """
        if not header.is_control:
            self.transactions.on_data_batch(header)
        elif header.count:
            self.transactions.on_kept_marker(header, _marker_type(batch, header))

    def _filter_control(self, batch: Buffer, header: BatchHeader) -> tuple[Buffer | None, int]:
        if header.producer_id >= FIRST_RESERVED_PRODUCER_ID:
            # It ends no transaction, and is removed only when the log's start passes it.
            return batch, header.count
        last = self.last_records.get(header.producer_id)
        fences = last is not None and last.last_data_offset < 0 and last.epoch == header.producer_epoch
        if not header.count:
            return (batch if fences or header.next_offset in self.ends else None), 0
        if not self.transactions.on_marker(header, _marker_type(batch, header)) or fences:
            return batch, header.count
        if not header.has_delete_horizon:
            payload = decompress_records(batch, header)
            spans = list(iter_record_spans(payload, header.count))
            return self._pack_records(header, payload, spans, sets_horizon=True), header.count
        if header.base_timestamp > self.now_ms:
            return batch, header.count
        return (_empty_batch(header) if header.next_offset in self.ends else None), 0

    def _filter_data(self, batch: Buffer, header: BatchHeader) -> tuple[Buffer | None, int]:
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        stays = header.next_offset in self.ends or (last is not None and last.last_data_offset == header.last_offset)
        if self.transactions.on_data_batch(header):
            return (_empty_batch(header) if stays else None), 0
        if not header.count:
            return (batch if stays else None), 0
        payload = decompress_records(batch, header)
        newest_offset = self.offsets.newest_offset
        base = header.base_offset
        horizon_passed = header.has_delete_horizon and header.base_timestamp <= self.now_ms
        tombstones = False
        kept = []
        for span in iter_record_spans(payload, header.count):
            key, value = span[4], span[5]
            if key is None or base + span[3] < newest_offset(key):
                continue
            if value is None:
                if horizon_passed:
                    continue
                tombstones = True
            kept.append(span)
        if not kept:
            return (_empty_batch(header) if stays else None), 0
        sets_horizon = tombstones and not header.has_delete_horizon
        if len(kept) == header.count and not sets_horizon:
            return batch, header.count
        return self._pack_records(header, payload, kept, sets_horizon=sets_horizon), len(kept)

    def _pack_records(
        self, header: BatchHeader, payload: bytes, kept: list[RecordSpan], *, sets_horizon: bool
    ) -> bytes:
        """The batch with only these records. Their bytes stay, unless the base timestamp becomes
        the delete horizon."""
        attributes, base_timestamp = header.attributes, header.base_timestamp
        max_timestamp = header.max_timestamp
        if not attributes & LOG_APPEND_TIME_FLAG:
            max_timestamp = base_timestamp + max(span[2] for span in kept)
        if sets_horizon:
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = min(self.now_ms + self.config.delete_retention_ms, MAX_INT64)
            shift_ms = header.base_timestamp - base_timestamp
            records = b"".join([encode_with_timestamp_delta(payload, span, span[2] + shift_ms) for span in kept])
        else:
            records = b"".join([payload[span[0] : span[1]] for span in kept])
        codec = header.compression
        new = replace(
            header, attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=len(kept)
        )
        return pack_batch(new, compress(codec, records, compression_level(codec, self.config)))


def _marker_type(batch: Buffer, header: BatchHeader) -> ControlRecordType:
    return control_record_type(decode_batch(batch, header)[0])


def _empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records. It keeps its offsets and its producer's sequence numbers."""
    attributes = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG) & ~COMPRESSION_MASK
    return pack_batch(replace(header, attributes=attributes, base_timestamp=header.max_timestamp, count=0), b"")


def map_keys(offsets: OffsetMap, transactions: CleanedTransactions, batch: Buffer, header: BatchHeader) -> bool:
    """The first pass over one batch. False when `offsets` is full: the cleaning then ends before
    this batch."""
    if header.is_control:
        if header.count:
            transactions.on_marker(header, _marker_type(batch, header))
    elif not transactions.on_data_batch(header) and not offsets.put_keys(batch, header):
        return False
    offsets.latest = max(offsets.latest, header.last_offset)
    return True
