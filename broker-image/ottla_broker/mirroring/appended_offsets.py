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
from ottla_broker.mirroring.mirror_partition import FetchOutcome, MirrorPartition, has_lost, learn, lost_epoch
from ottla_broker.mirroring.source_epochs import of_last
from ottla_broker.mirroring.source_positions import mark, source_position
from ottla_broker.wire.batch import LOG_OVERHEAD, Buffer
from ottla_broker.wire.fetch_response import FetchResponsePartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Appending:
    """`recorded`: how far the log says that the source was copied; `asked_next`: the offset of the source that is wanted next; `known_from`: from which on it
    is known what the source had; `resyncs`: whether it goes on where the source has parted from what was copied, with what that has instead.

    Invariant: nothing is appended but what follows what the log says at that moment. So it does not matter who else was copying a moment ago, and has
    not heard yet that it is not to any more."""

    producer_id: int
    recorded: int
    resyncs: bool
    known_from: int = 0
    asked_next: int = field(init=False)

    def __post_init__(self) -> None:
        self.asked_next = self.recorded

    def position(self, _: MirrorPartition) -> int:
        return self.asked_next

    def last_record_epoch(self, copy: MirrorPartition) -> int:
        return of_last(copy.source_epochs, self.known_from, self.asked_next)

    def source(self, copy: MirrorPartition) -> UUID | None:
        return copy.source_id

    def append(self, copy: MirrorPartition, got: FetchResponsePartition) -> FetchOutcome | None:
        records = memoryview(got.records)
        size, batches = split_whole_batches(records)
        if not batches:
            return None
        if (recorded := self._recorded(copy)) != self.recorded:
            self.recorded = self.asked_next = recorded
            self.known_from = 0
            return FetchOutcome.advanced
        first = batches[0][1]
        if first[0] < self.asked_next and self.asked_next > self.known_from:
            copy.reason = f"the source has one batch from {first[0]} to {first[0] + first[6]}, of which a part was copied, up to {self.asked_next}"
            return FetchOutcome.diverged
        if (outcome := learn(copy, self.known_from, self.asked_next, batches)) is not None:
            return outcome
        for at, fields in batches:
            validate_crc(records, at, fields)
        try:
            marked = self._marked(copy, records[:size], batches, got.aborted or ())
        except ValueError as reason:
            copy.reason = f"the source has come to {reason}"
            return FetchOutcome.diverged
        if marked:
            copy.partition.append_mirrored_records(marked)
            self.recorded = self._recorded(copy)
        last = batches[-1][1]
        self.asked_next = last[0] + last[6] + 1
        return None

    def _recorded(self, copy: MirrorPartition) -> int:
        return source_position(copy.partition.log.producers.get(self.producer_id))

    def _marked(
        self,
        copy: MirrorPartition,
        records: memoryview,
        batches: Sequence[tuple[int, HeaderFields]],
        aborted: Sequence[tuple[int, int]],
    ) -> Buffer:
        """What is to be appended; the bytes that came, changed in place, when nothing of them is left out."""
        log = copy.partition.log
        end, kept = log.end, []
        append_time_ms = log.storage.runtime.now_ms() if log.config.message_timestamp_type == "LogAppendTime" else None
        for at, fields in committed_batches(records, batches, aborted):
            mark(
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

    def part(self, copy: MirrorPartition, epoch: int, end: int) -> FetchOutcome:
        if not self.resyncs:
            return lost_epoch(copy, epoch, end)
        self._go_back(copy, end)
        return FetchOutcome.advanced

    def find_range(self, copy: MirrorPartition, start: int, end: int) -> FetchOutcome:
        if self.asked_next < start:
            if self.asked_next:
                logger.info(
                    "%r: the source's log starts at %d; copying, which had come to %d, goes on there",
                    copy.partition,
                    start,
                    self.asked_next,
                )
            self.asked_next = self.known_from = start
        elif self.asked_next > end:
            if not self.resyncs:
                return has_lost(copy, end)
            self._go_back(copy, end)
        return FetchOutcome.advanced

    def _go_back(self, copy: MirrorPartition, end: int) -> None:
        to = min(end, self.asked_next)
        logger.warning(
            "%r: the source has lost what was copied from its offset %d on; that stays here, and copying goes on there",
            copy.partition,
            to,
        )
        self.asked_next = to
        self.known_from = min(self.known_from, to)

    def follow_start(self, _: MirrorPartition) -> bool:
        return True  # what is let go here is this topic's own affair
