"""One cleaning of one log, in steps that run off the event loop's thread. They read closed segments
only, and write only the cleaned one.

The steps are generators that yield how many bytes they moved, about a MiB at a time: their caller
sets the pace and may stop. They open files for themselves. They release the interpreter's lock
after every `_YIELD_AFTER_WORK` bytes of work (`GilYield`), so that the event loop's thread does not
wait for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from time import sleep
from typing import Final

import msgspec

from ottla_broker.log.cleaning_plan import DirtyRange, SegmentSummary, group_segments
from ottla_broker.log.compaction import (
    CleanedTransactions,
    CleanerStats,
    CompactionFilter,
    LastRecord,
    OffsetMap,
    map_keys,
)
from ottla_broker.log.config import MAX_INT64, LogConfig
from ottla_broker.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, AbortedTransaction, CorruptSegment
from ottla_broker.log.log_state import LogState
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID, ProducerStateEntry
from ottla_broker.log.segment import Segment
from ottla_broker.log.segment_swap import sync_segment
from ottla_broker.wire.batch import BatchHeader, Buffer, parse_batch_header
from ottla_broker.wire.errors import KafkaError

_STEP_BYTES: Final = 1 << 20
_YIELD_AFTER_WORK: Final = 128 << 10
_WORK_PER_RECORD: Final = 256
_YIELD_S: Final = 1e-6
"""The shortest sleep that really gives up the interpreter's lock; 0 may get it back at once."""


class GilYield:
    """Gives up the interpreter's lock often enough.

    Python code in a thread keeps it for 5 ms otherwise: the event loop's thread would have to wait
    that long each time that it wakes up while compaction runs. Work is counted in bytes, with
    `_WORK_PER_RECORD` for each record.
    """

    __slots__ = ("_work",)

    def __init__(self) -> None:
        self._work = 0

    def after_batch(self, header: BatchHeader) -> None:
        self._work += header.size + _WORK_PER_RECORD * (1 + header.count)
        if self._work >= _YIELD_AFTER_WORK:
            self._work = 0
            sleep(_YIELD_S)


class SourceSegment(msgspec.Struct, frozen=True):
    """A closed segment that is read. `next_base`: base offset of the next segment."""

    segment: Segment
    summary: SegmentSummary
    next_base: int

    def reopen(self, files: OpenFiles) -> Segment:
        """The segment through the cleaning's own open files: those of the log belong to the event
        loop's thread."""
        own = self.segment
        return Segment(files, own.directory, own.base, size=self.summary.size, created_ms=own.created_ms)


class CleaningJob(msgspec.Struct, frozen=True):
    """The state of a log that a cleaning works with, gathered on the event loop's thread.

    `sources`: the segments from the log's start up to the end of `dirty`. `later_aborted`: aborted
    transactions in the indexes of the segments after those.
    """

    log: LogState
    config: LogConfig
    dirty: DirtyRange
    sources: Sequence[SourceSegment]
    later_aborted: Sequence[AbortedTransaction]
    last_records: Mapping[int, LastRecord]
    truncation_count: int
    now_ms: int

    def is_current(self, sources: Sequence[SourceSegment]) -> bool:
        """True if the log still has these segments as they were: no truncation, retention or
        failure came between."""
        log = self.log
        present = set(map(id, log.segments))
        return (
            log.failure is None
            and log.flush.truncation_count == self.truncation_count
            and all(id(one.segment) in present and one.segment.size == one.summary.size for one in sources)
        )

    def aborted_transactions(self, files: OpenFiles) -> list[AbortedTransaction]:
        """Aborted transactions of the whole log, oldest marker first. Raises OSError,
        CorruptSegment.
        """
        found: list[AbortedTransaction] = []
        for source in self.sources:
            found += source.reopen(files).transactions.entries()
        return found + list(self.later_aborted)


def summarize_segments(log: LogState) -> list[SegmentSummary]:
    """A summary of every segment for `log.cleaning_plan`. Raises OSError, CorruptSegment.

    Timestamps are read only if a setting needs them, because that may access the disk. Index sizes
    are the most that rebuilt indexes would have.
    """
    needs_largest = log.config.min_compaction_lag_ms > 0
    needs_first = log.config.max_compaction_lag_ms < MAX_INT64
    active = log.segments.active
    interval = log.config.index_interval_bytes
    return [
        SegmentSummary(
            segment.base,
            segment.size,
            segment.max_timestamp_and_offset.timestamp if needs_largest and segment is not active else -1,
            segment.first_batch_timestamp() if needs_first and segment is not active and segment.size else -1,
            OFFSET_ENTRY_BYTES * (segment.size // interval + 1),
            TIME_ENTRY_BYTES * (segment.size // interval + 1),
        )
        for segment in log.segments
    ]


def plan_job(log: LogState, dirty: DirtyRange, now_ms: int) -> CleaningJob:
    """The job that cleans this range of the log. Raises OSError or CorruptSegment if an index or a
    batch header cannot be read."""
    segments = list(log.segments)
    sources = [
        SourceSegment(segment, summary, following.base)
        for segment, summary, following in zip(segments, summarize_segments(log), segments[1:], strict=False)
        if summary.base < dirty.end
    ]
    return CleaningJob(
        log,
        log.config,
        dirty,
        sources,
        [entry for segment in segments[len(sources) :] for entry in segment.transactions.entries()],
        {p.producer_id: LastRecord(last_offset_to_keep(log, p), p.epoch) for p in log.producers},
        log.flush.truncation_count,
        now_ms,
    )


def last_offset_to_keep(log: LogState, producer: ProducerStateEntry) -> int:
    """The last offset of the producer's last batch, which cleaning retains even when it is empty;
    −1 if there is none.

    For a reserved producer id it is the last batch below the high watermark: a change of leader may
    remove a later one, and then the log would have no batch of that id.
    """
    if producer.producer_id < FIRST_RESERVED_PRODUCER_ID:
        return producer.last_offset
    return next((one.last_offset for one in reversed(producer.batches) if one.last_offset < log.high_watermark), -1)


def can_clean(log: LogState) -> bool:
    """True if the batch to retain is known for each reserved producer id. The log remembers only
    the last few batches of an id, and all of them may be above the high watermark.
    """
    return all(
        last_offset_to_keep(log, producer) >= 0
        for producer in log.producers
        if producer.producer_id >= FIRST_RESERVED_PRODUCER_ID and producer.batches
    )


def group_sources(job: CleaningJob, end: int) -> list[list[SourceSegment]]:
    """The sources below offset `end`, in groups, each of which becomes one segment."""
    sources = {source.summary.base: source for source in job.sources if source.summary.base < end}
    if not sources:
        return []
    last = max(sources.values(), key=lambda source: source.summary.base).next_base
    groups = group_segments([source.summary for source in sources.values()], job.config, last)
    return [[sources[summary.base] for summary in group] for group in groups]


def build_offset_map(files: OpenFiles, job: CleaningJob, offsets: OffsetMap) -> Iterator[int]:
    """The first pass: fills `offsets` from the dirty part, until it is full. Raises OSError,
    CorruptSegment."""
    transactions = CleanedTransactions(job.aborted_transactions(files))
    first_dirty = offsets.first_dirty
    gil = GilYield()
    for source in job.sources:
        if source.next_base <= first_dirty:
            continue
        moved = 0
        for position, batch, header in source.reopen(files).iter_whole_batches(0, source.summary.size):
            if header.last_offset < first_dirty:
                continue
            try:
                if not map_keys(offsets, transactions, batch, header):
                    yield moved
                    return
            except KafkaError as error:
                raise CorruptSegment(source.segment.path, position, str(error)) from error
            moved += header.size
            if moved >= _STEP_BYTES:
                yield moved
                moved = 0
            gil.after_batch(header)
        # There may be a hole at the segment's end.
        offsets.latest = max(offsets.latest, source.next_base - 1)
        yield moved


def make_filter(
    files: OpenFiles,
    job: CleaningJob,
    offsets: OffsetMap,
    groups: Sequence[Sequence[SourceSegment]],
    stats: CleanerStats,
) -> CompactionFilter:
    """The second pass's filter. Reads all transaction indexes, so it must not run on the event
    loop's thread. Raises OSError, CorruptSegment."""
    ends = frozenset((job.dirty.end, *(group[-1].next_base for group in groups)))
    transactions = CleanedTransactions(job.aborted_transactions(files))
    return CompactionFilter(offsets, transactions, job.last_records, job.config, ends, job.now_ms, stats)


def clean_group(
    files: OpenFiles, group: Sequence[SourceSegment], record_filter: CompactionFilter, new: Segment
) -> Iterator[int]:
    """Writes the records of a group that are retained into `new` and syncs it. Yields bytes read
    and written since the last step. Raises OSError, CorruptSegment.
    """
    interval = record_filter.config.index_interval_bytes
    pending: list[Buffer] = []
    pending_bytes = moved = 0
    gil = GilYield()
    for source in group:
        for position, batch, header in source.reopen(files).iter_whole_batches(0, source.summary.size):
            try:
                kept = record_filter.filter_batch(batch, header)
            except KafkaError as error:
                raise CorruptSegment(source.segment.path, position, str(error)) from error
            moved += header.size
            if kept is not None:
                new_header = header if kept is batch else parse_batch_header(kept)
                new.index_batch(new.size, len(kept), new_header.last_offset, new_header.max_timestamp, interval)
                pending.append(kept)
                pending_bytes += len(kept)
            if moved >= _STEP_BYTES:
                new.file.append([b"".join(pending)])
                yield moved + pending_bytes
                pending, pending_bytes, moved = [], 0, 0
            gil.after_batch(header)
    new.file.append([b"".join(pending)])
    for entry in record_filter.transactions.kept:
        new.transactions.append(entry)
    record_filter.transactions.kept.clear()
    new.seal()
    sync_segment(files.disk, new)
    yield moved + pending_bytes
