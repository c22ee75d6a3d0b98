"""Mirrored records are appended at new offsets, beside records of other sources and of this
cluster's producers.

The log itself says up to which source offset it has been filled (`source_positions`). The next
offset to fetch can be further: batches between the two held nothing to append (transaction markers,
aborted data, batches that compaction has emptied). A new leader fetches these again.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.log.transaction_markers import read_end_marker
from ottla_broker.log.validation import HeaderFields, split_whole_batches, validate_crc
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition
from ottla_broker.mirroring.source_epochs import last_record_epoch
from ottla_broker.mirroring.source_positions import source_position, stamp_source_position
from ottla_broker.wire.batch import CONTROL_FLAG, LOG_OVERHEAD, TRANSACTIONAL_FLAG, BatchHeader, Buffer
from ottla_broker.wire.fetch_response import FetchResponsePartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class AppendedOffsets:
    """The OffsetPolicy of a mirror with `offsets: Appended`, for one partition and one source.
    `recorded_position` is the source offset up to which the log has been filled, and `next_offset`
    the next one to fetch.

    The source's leader epochs are known from offset `known_from` on. With `resyncs_on_truncation` a
    diverged source is followed from the divergence on.

    Invariant: only the batch that follows the position in the log is appended. So a fetcher of an
    earlier leader or configuration that has not stopped yet cannot append anything twice.
    """

    producer_id: int
    recorded_position: int
    resyncs_on_truncation: bool
    known_from: int = 0
    next_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.next_offset = self.recorded_position

    def position(self, _: MirroredPartition) -> int:
        return self.next_offset

    def last_record_epoch(self, mirrored: MirroredPartition) -> int:
        return last_record_epoch(mirrored.source_epochs, self.known_from, self.next_offset)

    def source_id(self, mirrored: MirroredPartition) -> UUID | None:
        return mirrored.source_id

    def append_batches(self, mirrored: MirroredPartition, data: FetchResponsePartition) -> FetchOutcome | None:
        records = memoryview(data.records)
        size, batches = split_whole_batches(records)
        if not batches:
            return None
        if (recorded := self._position_in_log(mirrored)) != self.recorded_position:
            self.recorded_position = self.next_offset = recorded
            self.known_from = 0
            return FetchOutcome.advanced
        first = batches[0][1]
        if first[0] < self.next_offset and self.next_offset > self.known_from:
            return mirrored.diverge(
                f"the source has one batch from offset {first[0]} to {first[0] + first[6]}, and a part of it was"
                f" mirrored, up to {self.next_offset}"
            )
        if (outcome := mirrored.find_new_epochs(self.known_from, self.next_offset, batches)) is not None:
            return outcome
        for at, fields in batches:
            validate_crc(records, at, fields)
        try:
            stamped = self._stamp_batches(mirrored, records[:size], batches, data.aborted or ())
        except ValueError as reason:
            return mirrored.diverge(str(reason))
        if stamped:
            mirrored.partition.append_mirrored_records(stamped)
            self.recorded_position = self._position_in_log(mirrored)
        last = batches[-1][1]
        self.next_offset = last[0] + last[6] + 1
        return None

    def _position_in_log(self, mirrored: MirroredPartition) -> int:
        return source_position(mirrored.partition.log.producers.get(self.producer_id))

    def _stamp_batches(
        self,
        mirrored: MirroredPartition,
        records: memoryview,
        batches: Sequence[tuple[int, HeaderFields]],
        aborted: Sequence[tuple[int, int]],
    ) -> Buffer:
        """The bytes to append: `records` itself, changed in place, if no batch is left out.

        Raises ValueError for a batch that reaches SOURCE_OFFSET_LIMIT; KafkaError: CORRUPT_MESSAGE.
        """
        log = mirrored.partition.log
        end, kept = log.end, []
        append_time_ms = log.storage.runtime.now_ms() if log.config.message_timestamp_type == "LogAppendTime" else None
        for at, fields in committed_batches(records, batches, aborted):
            stamp_source_position(
                records,
                at,
                fields,
                producer_id=self.producer_id,
                base_offset=end,
                leader_epoch=mirrored.leader_epoch,
                append_time_ms=append_time_ms,
            )
            end += fields[6] + 1
            kept.append(records[at : at + fields[1] + LOG_OVERHEAD])
        return records if len(kept) == len(batches) else b"".join(kept)

    def handle_divergence(self, mirrored: MirroredPartition, epoch: int, end: int) -> FetchOutcome:
        if not self.resyncs_on_truncation:
            return mirrored.diverge_at_epoch(epoch, end)
        return self._rewind(mirrored, end)

    def handle_out_of_range(self, mirrored: MirroredPartition, start: int, end: int) -> FetchOutcome:
        if self.next_offset < start:
            if self.next_offset:
                logger.info(
                    "%r: continuing at source offset %d, where the source's log starts; the next offset was %d",
                    mirrored.partition,
                    start,
                    self.next_offset,
                )
            self.next_offset = self.known_from = start
        elif self.next_offset > end:
            return self._rewind(mirrored, end) if self.resyncs_on_truncation else mirrored.diverge_at_end(end)
        return FetchOutcome.advanced

    def _rewind(self, mirrored: MirroredPartition, end: int) -> FetchOutcome:
        """Continues where the source's log has diverged.

        Records that the source has lost stay in the log here.
        """
        self.next_offset = min(end, self.next_offset)
        self.known_from = min(self.known_from, self.next_offset)
        logger.warning(
            "%r: the source has lost mirrored records from its offset %d on; they stay here, and mirroring"
            " continues there",
            mirrored.partition,
            self.next_offset,
        )
        return FetchOutcome.advanced

    def advance_log_start(self, _: MirroredPartition) -> None:
        """Does nothing: the topic has retention settings of its own."""


def committed_batches(
    records: memoryview, batches: Iterable[tuple[int, HeaderFields]], aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, HeaderFields]]:
    """Batches whose records belong to a committed transaction or to none. Pure.

    The source was asked as a read_committed consumer: it sends nothing from the first open
    transaction on and names the aborted transactions in `aborted`, as (producer id, first offset)
    (KIP-98). Transaction markers are left out, because no records of the source's producer ids
    remain. Raises KafkaError: CORRUPT_MESSAGE.
    """
    upcoming = sorted(aborted, key=lambda it: it[1], reverse=True)
    aborting: set[int] = set()
    for at, fields in batches:
        base, length, _, _, _, attributes, delta, _, _, producer_id, _, _, count = fields
        while upcoming and upcoming[-1][1] <= base + delta:
            aborting.add(upcoming.pop()[0])
        if attributes & CONTROL_FLAG:
            marker = read_end_marker(records[at : at + length + LOG_OVERHEAD], BatchHeader(*fields)) if count else None
            if marker is not None and marker.aborts:
                aborting.discard(producer_id)
        elif count and not (attributes & TRANSACTIONAL_FLAG and producer_id in aborting):
            yield at, fields
