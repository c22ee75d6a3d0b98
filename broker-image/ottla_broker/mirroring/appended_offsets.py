"""How a copy goes on whose records are appended: with new offsets, beside those of other sources and of this cluster's producers.

Where it goes on is what the log itself says (`positions`); what lies between there and what is asked for next was looked at and left out: markers, aborted
data, what compaction has emptied. It is looked at again by whoever leads next.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.log.validation import HeaderFields, split_whole_batches, validate_crc
from ottla_broker.mirroring.committed import committed_batches
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition, has_lost, learn, lost_epoch
from ottla_broker.mirroring.source_epochs import last_record_epoch
from ottla_broker.mirroring.source_positions import source_position, stamp_source_position
from ottla_broker.wire.batch import LOG_OVERHEAD, Buffer
from ottla_broker.wire.replica_fetch import FetchResponsePartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class AppendedOffsets:
    """`recorded`: how far the log says that the source was copied; `asked_next`: the offset of the source that is wanted next; `known_from`: from which on it
    is known what the source had; `resyncs`: whether it goes on where the source has parted from what was copied, with what that has instead.

    Invariant: nothing is appended but what follows what the log says at that moment. So it does not matter who else was copying a moment ago, and has
    not heard yet that it is not to any more."""

    producer_id: int
    recorded_position: int
    resyncs_on_truncation: bool
    known_from: int = 0
    next_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.next_offset = self.recorded_position

    def position(self, _: MirroredPartition) -> int:
        return self.next_offset

    def last_record_epoch(self, copy: MirroredPartition) -> int:
        return last_record_epoch(copy.source_epochs, self.known_from, self.next_offset)

    def source_id(self, copy: MirroredPartition) -> UUID | None:
        return copy.source_id

    def append_batches(self, copy: MirroredPartition, got: FetchResponsePartition) -> FetchOutcome | None:
        records = got.records
        size, batches = split_whole_batches(records)
        if not batches:
            return None
        if (recorded := self._position_in_log(copy)) != self.recorded_position:
            self.recorded_position = self.next_offset = recorded
            self.known_from = 0
            return FetchOutcome.advanced
        first = batches[0][1]
        if first[0] < self.next_offset and self.next_offset > self.known_from:
            copy.reason = f"the source has one batch from {first[0]} to {first[0] + first[6]}, of which a part was copied, up to {self.next_offset}"
            return FetchOutcome.diverged
        if (outcome := learn(copy, self.known_from, self.next_offset, batches)) is not None:
            return outcome
        for at, fields in batches:
            validate_crc(records, at, fields)
        try:
            marked = self._marked(copy, records[:size], batches, got.aborted)
        except ValueError as reason:
            copy.reason = f"the source has come to {reason}"
            return FetchOutcome.diverged
        if marked:
            copy.partition.append_mirrored_records(marked)
            self.recorded_position = self._position_in_log(copy)
        last = batches[-1][1]
        self.next_offset = last[0] + last[6] + 1
        return None

    def _position_in_log(self, copy: MirroredPartition) -> int:
        return source_position(copy.partition.log.producers.get(self.producer_id))

    def _marked(
        self,
        copy: MirroredPartition,
        records: memoryview,
        batches: Sequence[tuple[int, HeaderFields]],
        aborted: Sequence[tuple[int, int]],
    ) -> Buffer:
        """What is to be appended; the bytes that came, changed in place, when nothing of them is left out."""
        log = copy.partition.log
        end, kept = log.end, []
        append_time_ms = log.storage.runtime.now_ms() if log.config.message_timestamp_type == "LogAppendTime" else None
        for at, fields in committed_batches(records, batches, aborted):
            stamp_source_position(
                records,
                at,
                fields,
                producer_id=self.producer_id,
                base_offset=end,
                leader_epoch=copy.leader_epoch,
                append_time_ms=append_time_ms,
            )
            end += fields[6] + 1
            kept.append(records[at : at + fields[1] + LOG_OVERHEAD])
        return records if len(kept) == len(batches) else b"".join(kept)

    def handle_divergence(self, copy: MirroredPartition, epoch: int, end: int) -> FetchOutcome:
        if not self.resyncs_on_truncation:
            return lost_epoch(copy, epoch, end)
        self._go_back(copy, end)
        return FetchOutcome.advanced

    def handle_out_of_range(self, copy: MirroredPartition, start: int, end: int) -> FetchOutcome:
        if self.next_offset < start:
            if self.next_offset:
                logger.info(
                    "%r: the source's log starts at %d; copying, which had come to %d, goes on there",
                    copy.partition,
                    start,
                    self.next_offset,
                )
            self.next_offset = self.known_from = start
        elif self.next_offset > end:
            if not self.resyncs_on_truncation:
                return has_lost(copy, end)
            self._go_back(copy, end)
        return FetchOutcome.advanced

    def _go_back(self, copy: MirroredPartition, end: int) -> None:
        to = min(end, self.next_offset)
        logger.warning(
            "%r: the source has lost what was copied from its offset %d on; that stays here, and copying goes on there",
            copy.partition,
            to,
        )
        self.next_offset = to
        self.known_from = min(self.known_from, to)

    def advance_log_start(self, _: MirroredPartition) -> bool:
        return True  # what is let go here is this topic's own affair
