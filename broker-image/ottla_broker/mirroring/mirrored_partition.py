"""What the leader of a copied partition does with what the source answered for it.

- Batches are appended as they are, at the offsets that they have; only the leader epoch in their headers, which no CRC covers, becomes ours.
- A leader epoch of the source that is new is written down in the metadata first (`source_epochs`).
- The log starts where the source's starts. What the source has lost of what we hold is never mixed with what it has instead.
"""

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol
from uuid import UUID

from ottla_broker.log.validation import HeaderFields, split_whole_batches
from ottla_broker.mirroring.source_epochs import EpochEntries, EpochRegression, epochs_after_append, last_record_epoch
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import HEADER_SIZE
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.replica_fetch import FetchResponsePartition

logger = logging.getLogger(__name__)

_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12  # in a batch's header
UNKNOWN = -1
HALVED_BYTES = 16 << 20


class FetchOutcome(Enum):
    unchanged = auto()  # nothing has changed of what we want next
    advanced = auto()  # the log ends elsewhere now
    new_epochs = auto()  # `Copy.to_learn` is to be written down first
    out_of_range = auto()  # the source has no such offset
    not_leader = auto()  # that broker does not lead it, or not this topic
    diverged = auto()  # the source's log is not the one that was copied: `Copy.why`
    retriable_error = auto()  # an error of the source's that may pass


ELSEWHERE = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
    }
)


class OffsetPolicy(Protocol):
    """How a copy goes on: at the source's offsets (`Identical`), or with offsets of its own (`appending`). Offsets and epochs are the source's."""

    def position(self, copy: "MirroredPartition") -> int:
        """What is wanted next."""
        ...

    def last_record_epoch(self, copy: "MirroredPartition") -> int:
        """Of the record before that; −1: not known."""
        ...

    def source_id(self, copy: "MirroredPartition") -> UUID | None:
        """Which source it is, where a topic may have several."""
        ...

    def append_batches(self, copy: "MirroredPartition", got: FetchResponsePartition) -> FetchOutcome | None:
        """What hinders it."""
        ...

    def handle_divergence(self, copy: "MirroredPartition", epoch: int, end: int) -> FetchOutcome:
        """The source's log holds records of `epoch` up to `end` only."""
        ...

    def handle_out_of_range(self, copy: "MirroredPartition", start: int, end: int) -> FetchOutcome:
        """After OFFSET_OUT_OF_RANGE: the source's log goes from `start` to `end`."""
        ...

    def advance_log_start(self, copy: "MirroredPartition") -> bool:
        """Lets go what the source has let go; whether that was all of it."""
        ...


@dataclass(slots=True, eq=False)
class LastResponse:
    """When a broker of the source answered last, by the loop's clock: it answers every `fetch.max.wait.ms`, records or not."""

    received_s: float = UNKNOWN


@dataclass(slots=True, eq=False)
class BytesPerOffset:
    """Bytes per offset, of what came last: what is older counts for half with every further `HALVED_BYTES`."""

    size: float = 0.0
    offsets: float = 0.0

    def add(self, size: int, offsets: int) -> None:
        self.size += size
        self.offsets += offsets
        while self.size > 2 * HALVED_BYTES:
            self.size /= 2
            self.offsets /= 2


@dataclass(slots=True, eq=False)
class MirroredPartition:
    """A partition that this broker leads, in the epoch in which it leads it. `source_end`: the source's high watermark, `source_start`: its log
    start, both as last seen; `asked`: the offset of the request that is under way; `caught_up_s`: when nothing was missing here, by the loop's
    clock."""

    partition: Partition
    source_topic: str
    source_id: UUID
    source_epochs: EpochEntries
    offset_policy: OffsetPolicy = field(default_factory=lambda: IDENTICAL_OFFSETS)
    leader_epoch: int = field(init=False)
    source_high_watermark: int = UNKNOWN
    source_log_start: int = UNKNOWN
    requested_offset: int = UNKNOWN
    last_caught_up_s: float = UNKNOWN
    unrecorded_epochs: EpochEntries = ()
    reason: str = ""
    retry_pause_s: float = 0.0
    retry_at_s: float = 0.0
    bytes_per_offset: BytesPerOffset = field(default_factory=BytesPerOffset)
    last_response: LastResponse = field(default_factory=LastResponse)

    def __post_init__(self) -> None:
        self.leader_epoch = self.partition.leader_epoch

    @property
    def key(self) -> tuple[UUID, int]:
        return self.source_id, self.partition.partition

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads it still, in the same epoch."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def position(self) -> int:
        """The offset of the source that is wanted next."""
        return self.offset_policy.position(self)

    @property
    def last_record_epoch(self) -> int:
        return self.offset_policy.last_record_epoch(self)

    def lag_s(self, now_s: float) -> float:
        """For how long something has been missing here; 0 when nothing was, when the source was last seen."""
        return 0.0 if not self.lag else max(now_s - self.last_caught_up_s, 0.0)

    @property
    def lag(self) -> int:
        """Offsets by which the source's high watermark is ahead."""
        return max(self.source_high_watermark - self.position, 0)

    @property
    def lag_bytes(self) -> int:
        """An estimate: as many offsets, each as large as those that came last, or else as those that are here; −1 when there is nothing to go by."""
        if not self.lag:
            return 0
        log, weight = self.partition.log, self.bytes_per_offset
        if weight.offsets:
            return round(self.lag * weight.size / weight.offsets)
        return round(self.lag * log.size / (log.end - log.start)) if log.end > log.start else UNKNOWN

    def source_silence_s(self, now_s: float) -> float:
        """For how long its broker of the source has not answered; −1 when it never has."""
        heard_s = self.last_response.received_s
        return UNKNOWN if heard_s == UNKNOWN else max(now_s - heard_s, 0.0)


def process_partition_data(copy: MirroredPartition, got: FetchResponsePartition, now_s: float) -> FetchOutcome:
    """KafkaError: CORRUPT_MESSAGE, INVALID_RECORD (what was sent has a format of old), KAFKA_STORAGE_ERROR."""
    if got.error is not ErrorCode.none:
        if got.error is ErrorCode.offset_out_of_range:
            return FetchOutcome.out_of_range
        return FetchOutcome.not_leader if got.error in ELSEWHERE else FetchOutcome.retriable_error
    if got.diverging is not None:
        return copy.offset_policy.handle_divergence(copy, *got.diverging)
    before = copy.position
    if len(got.records) >= HEADER_SIZE:
        if copy.requested_offset != before:
            return FetchOutcome.advanced  # the log was cut off meanwhile: this is not what follows it now
        if (outcome := copy.offset_policy.append_batches(copy, got)) is not None:
            return outcome
    copy.source_high_watermark = max(got.high_watermark, 0)
    if copy.position >= copy.source_high_watermark or copy.last_caught_up_s == UNKNOWN:
        copy.last_caught_up_s = now_s
    copy.source_log_start = got.log_start
    copy.offset_policy.advance_log_start(copy)
    return FetchOutcome.unchanged if copy.position == before else FetchOutcome.advanced


def lost_epoch(copy: MirroredPartition, epoch: int, end: int) -> FetchOutcome:
    copy.reason = (
        f"the source has lost records that were copied: its log holds records of leader epoch {epoch} up to offset {end} only; the copy ends "
        f"at {copy.position} with records of epoch {copy.last_record_epoch}"
    )
    return FetchOutcome.diverged


def has_lost(copy: MirroredPartition, end: int) -> FetchOutcome:
    copy.reason = (
        f"the source has lost records that were copied: its log ends at offset {end}, the copy at {copy.position}"
    )
    return FetchOutcome.diverged


def learn(
    copy: MirroredPartition, start: int, end: int, batches: Sequence[tuple[int, HeaderFields]]
) -> FetchOutcome | None:
    """What hinders the taking of `batches` behind what was copied, from `start` to `end`: leader epochs of the source that are to be written down first, or
    that cannot be."""
    try:
        copy.unrecorded_epochs = epochs_after_append(copy.source_epochs, start, end, batches) or ()
    except EpochRegression as reason:
        copy.reason = f"the source is not what was copied: {reason}"
        return FetchOutcome.diverged
    return FetchOutcome.new_epochs if copy.unrecorded_epochs else None


def _append(copy: MirroredPartition, records: memoryview) -> FetchOutcome | None:
    """What hinders it."""
    log = copy.partition.log
    _, batches = split_whole_batches(records)
    if not batches:
        return None
    if (outcome := learn(copy, log.start, log.end, batches)) is not None:
        return outcome
    first: HeaderFields = batches[0][1]
    if first[0] < log.end:
        if log.end > log.start:
            copy.reason = f"the source has one batch from {first[0]} to {first[0] + first[6]}, inside of which the copy ends at {log.end}"
            return FetchOutcome.diverged
        # The source's log starts inside of a batch, and so will ours; it holds the batch whole all the same.
        log.truncate_fully_and_start_at(first[0])
    for at, _ in batches:
        _EPOCH.pack_into(records, at + _EPOCH_AT, copy.leader_epoch)
    appended = copy.partition.append_mirrored_records(records)
    copy.bytes_per_offset.add(appended.byte_count, log.end - first[0])
    return None


def follow_start(copy: MirroredPartition) -> bool:
    """Raises the log's start to the source's as far as the high watermark has come; whether that was all the way."""
    log = copy.partition.log
    wanted = min(copy.source_log_start, log.high_watermark)
    if log.start < wanted:
        log.delete_records_before(wanted)
        copy.partition.notify_log_start_change()
    return log.start >= copy.source_log_start


def find_range(copy: MirroredPartition, start: int, end: int) -> FetchOutcome:
    """After OFFSET_OUT_OF_RANGE: the source's log goes from `start` to `end`. Either what follows ours was deleted there before it was copied,
    or the source has lost records."""
    log = copy.partition.log
    if log.end < start:
        logger.info(
            "%r: the source's log starts at %d; the copy, which ended at %d, goes on there",
            copy.partition,
            start,
            log.end,
        )
        log.truncate_fully_and_start_at(start)
        return FetchOutcome.advanced
    if log.end > end:
        return has_lost(copy, end)
    return FetchOutcome.advanced


class IdenticalOffsets:
    """The same batches at the same offsets: the log itself says where it goes on."""

    def position(self, copy: MirroredPartition) -> int:
        return copy.partition.log.end

    def last_record_epoch(self, copy: MirroredPartition) -> int:
        log = copy.partition.log
        return last_record_epoch(copy.source_epochs, log.start, log.end)

    def source_id(self, _: MirroredPartition) -> UUID | None:
        return None

    def append_batches(self, copy: MirroredPartition, got: FetchResponsePartition) -> FetchOutcome | None:
        return _append(copy, got.records)

    def handle_divergence(self, copy: MirroredPartition, epoch: int, end: int) -> FetchOutcome:
        return lost_epoch(copy, epoch, end)

    def handle_out_of_range(self, copy: MirroredPartition, start: int, end: int) -> FetchOutcome:
        return find_range(copy, start, end)

    def advance_log_start(self, copy: MirroredPartition) -> bool:
        return follow_start(copy)


IDENTICAL_OFFSETS: OffsetPolicy = IdenticalOffsets()
