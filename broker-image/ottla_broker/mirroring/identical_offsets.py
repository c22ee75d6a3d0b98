"""Mirrored records keep the source's offsets, so the log's end is the next offset to fetch.

Only the leader epoch in a batch's header becomes the one here; it lies outside the CRC. The log
starts where the source's does.
"""

import logging
import struct
from typing import Final
from uuid import UUID

from ottla_broker.log.validation import split_whole_batches
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition, OffsetPolicy
from ottla_broker.mirroring.source_epochs import last_record_epoch
from ottla_broker.wire.fetch_response import FetchResponsePartition

logger = logging.getLogger(__name__)

_EPOCH: Final = struct.Struct(">i")
_EPOCH_OFFSET: Final = 12  # of the leader epoch in a batch's header


class IdenticalOffsets:
    """The OffsetPolicy of mirrors with `offsets: Identical`."""

    def position(self, mirrored: MirroredPartition) -> int:
        return mirrored.partition.log.end

    def last_record_epoch(self, mirrored: MirroredPartition) -> int:
        log = mirrored.partition.log
        return last_record_epoch(mirrored.source_epochs, log.start, log.end)

    def source_id(self, _: MirroredPartition) -> UUID | None:
        return None

    def append_batches(self, mirrored: MirroredPartition, data: FetchResponsePartition) -> FetchOutcome | None:
        log, records = mirrored.partition.log, memoryview(data.records)
        _, batches = split_whole_batches(records)
        if not batches:
            return None
        if (outcome := mirrored.find_new_epochs(log.start, log.end, batches)) is not None:
            return outcome
        first = batches[0][1]
        if first[0] < log.end:
            if log.end > log.start:
                return mirrored.diverge(
                    f"the source has one batch from offset {first[0]} to {first[0] + first[6]}, and the mirrored"
                    f" records end inside it at {log.end}"
                )
            # The source's log starts inside a batch, which it still holds whole; the log here
            # starts with that batch.
            log.truncate_fully_and_start_at(first[0])
        for at, _ in batches:
            _EPOCH.pack_into(records, at + _EPOCH_OFFSET, mirrored.leader_epoch)
        appended = mirrored.partition.append_mirrored_records(records)
        mirrored.bytes_per_offset.add(appended.byte_count, log.end - first[0])
        return None

    def handle_divergence(self, mirrored: MirroredPartition, epoch: int, end: int) -> FetchOutcome:
        return mirrored.diverge_at_epoch(epoch, end)

    def handle_out_of_range(self, mirrored: MirroredPartition, start: int, end: int) -> FetchOutcome:
        """The source has deleted the next records before they were fetched, or has lost records."""
        log = mirrored.partition.log
        if log.end < start:
            logger.info(
                "%r: continuing at offset %d, where the source's log starts; the local log ended at %d",
                mirrored.partition,
                start,
                log.end,
            )
            log.truncate_fully_and_start_at(start)
        elif log.end > end:
            return mirrored.diverge_at_end(end)
        return FetchOutcome.advanced

    def advance_log_start(self, mirrored: MirroredPartition) -> None:
        """Raises the log start to the source's, at most to the high watermark."""
        log = mirrored.partition.log
        target = min(mirrored.source_log_start, log.high_watermark)
        if log.start < target:
            log.delete_records_before(target)
            mirrored.partition.notify_log_start_change()


IDENTICAL_OFFSETS: Final[OffsetPolicy] = IdenticalOffsets()
