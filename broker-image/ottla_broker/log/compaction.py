"""Compaction of batches, without files: which records of a compacted topic stay, and what their batches look like then.

Two passes over the log, as Kafka's cleaner makes them. The first notes the newest offset of every key in the dirty part
(`KeyOffsets`). The second (`Compaction`) goes through all batches from the log's start to the last noted offset and
drops:

- records whose key has a newer offset, and records without a key;
- all of an aborted transaction; its marker, and that of a transaction of which nothing is left, one delete.retention.ms
  later;
- tombstones (null values), one delete.retention.ms after the first cleaning that kept them (KIP-534): that cleaning
  writes the time into the batch (attribute bit 6, base timestamp = the horizon), the first one past it drops them.

Offsets never change, nor do a batch's base offset, last offset and base sequence. The last batch of every active
producer stays, empty if need be: so a producer's state rebuilt from the cleaned log is what it was. So does the last
batch of every new segment: a hole between two segments would look like a loss, and a segment tells where it ends.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, NamedTuple

from ottla_broker.log.config import MAX_INT64, LogConfig
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.log.rewrite import level_of
from ottla_broker.log.txn_index import AbortedTransaction
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
from ottla_broker.wire.records import (
    RecordSpan,
    decode_batch,
    decompress_records,
    encode_with_timestamp_delta,
    iter_record_spans,
)

# What one key takes in a `KeyOffsets`, by measurement: key, offset, and their share of the table while it grows.
BYTES_PER_KEY: Final = 220
_LONGEST_PLAIN_KEY: Final = 32


class KeyOffsets:
    """The newest offset of each key, up to `capacity` keys. `latest`: the last offset that is taken into account.

    Long keys are held by a digest: 33 bytes, which no short key has, of which the first 32 are BLAKE2b-256.
    """

    __slots__ = ("_offsets", "capacity", "first_dirty", "latest")

    def __init__(self, buffer_bytes: int, first_dirty: int) -> None:
        self.capacity = max(1, buffer_bytes // BYTES_PER_KEY)
        self.first_dirty = first_dirty
        self.latest = first_dirty - 1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, batch: Buffer, header: BatchHeader) -> bool:
        """Notes a data batch's keys from the first dirty offset on. False, with nothing noted, when they might not fit;
        a first batch always fits, so that every cleaning gets somewhere."""
        offsets = self._offsets
        if offsets and len(offsets) + header.count > self.capacity:
            return False
        base, first_dirty = header.base_offset, self.first_dirty
        for _, _, _, delta, key, _, _ in iter_record_spans(decompress_records(batch, header), header.count):
            if key is not None and base + delta >= first_dirty:
                offsets[key if len(key) <= _LONGEST_PLAIN_KEY else _digest(key)] = base + delta
        return True

    def newest(self, key: bytes) -> int:
        """−1 when the key is not in the dirty part."""
        return self._offsets.get(key if len(key) <= _LONGEST_PLAIN_KEY else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=32).digest() + b"\0"


class Transactions:
    """The ends of transactions as a pass comes by them. `aborted`: from the transaction indexes, at least all whose
    records or markers the pass may meet. `kept`: aborted ones whose marker stays, for the new segment's transaction
    index."""

    __slots__ = ("_aborted", "_committed", "_next", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer; whether a batch of it was met
        self._committed: set[int] = set()  # producers of whose committed transaction a batch was met
        self.kept: list[AbortedTransaction] = []

    def meet_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.attributes & TRANSACTIONAL_FLAG:
            return False
        self._begin_up_to(header.last_offset)
        found = self._aborted.get(header.producer_id)
        if found is None or found[0].last_offset < header.base_offset:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = found[0], True
        return True

    def meet_marker(self, header: BatchHeader, kind: ControlRecordType) -> bool:
        """Whether nothing of the transaction that the marker ends is left, so that the marker may go."""
        self._begin_up_to(header.last_offset)
        if kind is ControlRecordType.abort:
            transaction, met = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and met:
                self.kept.append(transaction)
            return not met
        if kind is ControlRecordType.commit:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        return False

    def meet_marker_that_stays(self, header: BatchHeader, kind: ControlRecordType) -> None:
        self._begin_up_to(header.last_offset)
        self._committed.discard(header.producer_id)
        if kind is ControlRecordType.abort and (found := self._aborted.pop(header.producer_id, None)) is not None:
            self.kept.append(found[0])

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while self._next < len(waiting) and waiting[self._next].first_offset <= offset:
            transaction = waiting[self._next]
            known = self._aborted.get(transaction.producer_id)
            # One whose marker the pass will not come by (it starts behind it) makes way for the producer's next.
            if known is None or known[0].last_offset < transaction.first_offset:
                self._aborted[transaction.producer_id] = transaction, False
            self._next += 1


class LastOfProducer(NamedTuple):
    """The newest thing of an active producer: its last data batch's last offset, or −1 when only a marker is left of
    it."""

    last_data_offset: int
    epoch: int


@dataclass(slots=True)
class Tally:
    """What a cleaning read and kept."""

    batches_read: int = 0
    records_read: int = 0
    bytes_read: int = 0
    batches_kept: int = 0
    records_kept: int = 0
    bytes_kept: int = 0
    without_key: int = 0


@dataclass(slots=True)
class Compaction:
    """The second pass, batch by batch in the log's order. `ends`: offsets at which the cleaning or one of the segments
    that it writes ends; the batch before each of them stays, empty if need be."""

    offsets: KeyOffsets
    transactions: Transactions
    last_of_producer: Mapping[int, LastOfProducer]
    config: LogConfig
    ends: Collection[int]
    now_ms: int
    tally: Tally = field(default_factory=Tally)

    def keep(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """What stays of a batch: itself when all of it stays, a smaller one, or None. KafkaError when its records do
        not parse."""
        tally = self.tally
        tally.batches_read += 1
        tally.records_read += header.count
        tally.bytes_read += header.size
        if header.base_offset > self.offsets.latest:
            self._pass(batch, header)
            kept: Buffer | None = batch
            count = header.count
        elif header.is_control:
            kept, count = self._keep_control(batch, header)
        else:
            kept, count = self._keep_data(batch, header)
        if kept is not None:
            tally.batches_kept += 1
            tally.records_kept += count
            tally.bytes_kept += len(kept)
        return kept

    def _pass(self, batch: Buffer, header: BatchHeader) -> None:
        """A batch behind the noted offsets stays as it is, but may be the end of a transaction that began before."""
        if not header.is_control:
            self.transactions.meet_data(header)
        elif header.count:
            self.transactions.meet_marker_that_stays(header, _kind(batch, header))

    def _keep_control(self, batch: Buffer, header: BatchHeader) -> tuple[Buffer | None, int]:
        if header.producer_id >= FIRST_RESERVED_PRODUCER_ID:
            return batch, header.count  # it ends nothing, and goes with the log's start only
        last = self.last_of_producer.get(header.producer_id)
        fences = last is not None and last.last_data_offset < 0 and last.epoch == header.producer_epoch
        if not header.count:
            return (batch if fences or header.next_offset in self.ends else None), 0
        if not self.transactions.meet_marker(header, _kind(batch, header)) or fences:
            return batch, header.count
        if not header.has_delete_horizon:
            payload = decompress_records(batch, header)
            return self._packed(
                header, payload, list(iter_record_spans(payload, header.count)), sets_horizon=True
            ), header.count
        if header.base_timestamp > self.now_ms:
            return batch, header.count
        return (_emptied(header) if header.next_offset in self.ends else None), 0

    def _keep_data(self, batch: Buffer, header: BatchHeader) -> tuple[Buffer | None, int]:
        last = self.last_of_producer.get(header.producer_id) if header.producer_id >= 0 else None
        stays = header.next_offset in self.ends or (last is not None and last.last_data_offset == header.last_offset)
        if self.transactions.meet_data(header):
            return (_emptied(header) if stays else None), 0
        if not header.count:
            return (batch if stays else None), 0
        payload = decompress_records(batch, header)
        newest = self.offsets.newest
        base = header.base_offset
        horizon_passed = header.has_delete_horizon and header.base_timestamp <= self.now_ms
        tombstones = False
        kept = []
        for span in iter_record_spans(payload, header.count):
            key, value = span[4], span[5]
            if key is None:
                self.tally.without_key += 1
                continue
            if base + span[3] < newest(key):
                continue
            if value is None:
                if horizon_passed:
                    continue
                tombstones = True
            kept.append(span)
        if not kept:
            return (_emptied(header) if stays else None), 0
        sets_horizon = tombstones and not header.has_delete_horizon
        if len(kept) == header.count and not sets_horizon:
            return batch, header.count
        return self._packed(header, payload, kept, sets_horizon=sets_horizon), len(kept)

    def _packed(self, header: BatchHeader, payload: bytes, kept: list[RecordSpan], *, sets_horizon: bool) -> bytes:
        """The batch with only these records. Their bytes stay, unless the base timestamp becomes the delete horizon."""
        attributes, base_timestamp = header.attributes, header.base_timestamp
        max_timestamp = header.max_timestamp
        if not attributes & LOG_APPEND_TIME_FLAG:
            max_timestamp = base_timestamp + max(span[2] for span in kept)
        if sets_horizon:
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = min(self.now_ms + self.config.delete_retention_ms, MAX_INT64)
            sooner = header.base_timestamp - base_timestamp
            records = b"".join([encode_with_timestamp_delta(payload, span, span[2] + sooner) for span in kept])
        else:
            records = b"".join([payload[span[0] : span[1]] for span in kept])
        codec = header.compression
        return pack_batch(
            replace(
                header,
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                count=len(kept),
            ),
            compress(codec, records, level_of(codec, self.config)),
        )


def _kind(batch: Buffer, header: BatchHeader) -> ControlRecordType:
    return control_record_type(decode_batch(batch, header)[0])


def _emptied(header: BatchHeader) -> bytes:
    """The batch without its records: what its producer's last sequence, or the log's last offset, is known by."""
    attributes = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG) & ~COMPRESSION_MASK
    return pack_batch(replace(header, attributes=attributes, base_timestamp=header.max_timestamp, count=0), b"")


def noted(offsets: KeyOffsets, transactions: Transactions, batch: Buffer, header: BatchHeader) -> bool:
    """The first pass over one batch. False when `offsets` is full: the cleaning then ends before this batch."""
    if header.is_control:
        if header.count:
            transactions.meet_marker(header, _kind(batch, header))
    elif not transactions.meet_data(header) and not offsets.note(batch, header):
        return False
    offsets.latest = max(offsets.latest, header.last_offset)
    return True
