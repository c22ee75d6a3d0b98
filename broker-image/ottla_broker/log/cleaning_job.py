"""One cleaning of one log, in steps that run off the protocol's thread and touch nothing but closed files.

The steps are generators that yield how many bytes they moved, about a MiB at a time: whoever runs them sets the pace
and may stop. They open files for themselves, and release the interpreter's lock after every batch, so that the
protocol's thread is not kept waiting.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Final

from ottla_broker.log import swap
from ottla_broker.log.cleanable import SegmentFacts, ToClean, grouped, must_know_timestamps
from ottla_broker.log.compaction import Compaction, KeyOffsets, LastOfProducer, Tally, Transactions, noted
from ottla_broker.log.config import LogConfig
from ottla_broker.log.offset_index import ENTRY as OFFSET_ENTRY
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID, ProducerStateEntry
from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.time_index import ENTRY as TIME_ENTRY
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.wire.batch import BatchHeader, Buffer, parse_batch_header
from ottla_broker.wire.errors import KafkaError

_STEP: Final = 1 << 20
_BREATH: Final = 128 << 10  # of work, as `Breather` counts it
_RECORD_WORK: Final = 256  # a record's share of it, beside its bytes
_PAUSE_SECONDS: Final = 1e-6  # the shortest that really gives up the interpreter's lock; 0 may get it back at once


class Breather:
    """Python code in a thread gives up the interpreter's lock every 5 ms only: so long would the protocol's thread have
    to wait each time that it wakes up, while compaction runs."""

    __slots__ = ("_work",)

    def __init__(self) -> None:
        self._work = 0

    def worked(self, header: BatchHeader) -> None:
        self._work += header.size + _RECORD_WORK * (1 + header.count)
        if self._work >= _BREATH:
            self._work = 0
            sleep(_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment that is read. `next_base`: where the one behind it starts."""

    segment: Segment
    facts: SegmentFacts
    next_base: int


@dataclass(frozen=True, slots=True)
class Job:
    """What a cleaning needs to know of a log, taken down on the protocol's thread."""

    log: PartitionLog
    config: LogConfig
    wanted: ToClean
    sources: Sequence[Source]  # from the log's start up to `wanted.end`
    aborted_behind: Sequence[AbortedTransaction]  # by the indexes of the segments behind those
    last_of_producer: Mapping[int, LastOfProducer]
    truncations: int
    now_ms: int

    def still_holds(self, group: Sequence[Source]) -> bool:
        """Whether the log still has these segments as they were: no truncation, retention or failure came between."""
        log = self.log
        present = set(map(id, log.segments))
        return (
            log.failed is None
            and log.truncations == self.truncations
            and all(id(source.segment) in present and source.segment.size == source.facts.size for source in group)
        )


def facts_of(log: PartitionLog) -> list[SegmentFacts]:
    """What `log.cleanable` has to know of every segment. Timestamps are read only if a setting asks for them; index
    sizes are the most that indexes built anew for so many bytes would have. OSError, CorruptSegment."""
    largest, first = must_know_timestamps(log.config)
    active = log.segments.active
    interval = log.config.index_interval_bytes
    return [
        SegmentFacts(
            segment.base,
            segment.size,
            segment.largest.timestamp if largest and segment is not active else -1,
            segment.first_batch_timestamp() if first and segment is not active and segment.size else -1,
            OFFSET_ENTRY * (segment.size // interval + 1),
            TIME_ENTRY * (segment.size // interval + 1),
        )
        for segment in log.segments
    ]


def job_for(log: PartitionLog, wanted: ToClean, now_ms: int) -> Job:
    """OSError when a transaction index cannot be read."""
    segments = list(log.segments)
    known = facts_of(log)
    sources = [
        Source(segment, facts, following.base)
        for segment, facts, following in zip(segments, known, segments[1:], strict=False)
        if facts.base < wanted.end
    ]
    behind = segments[len(sources) :]
    return Job(
        log,
        log.config,
        wanted,
        sources,
        [entry for segment in behind for entry in segment.transactions.entries()],
        {p.producer_id: LastOfProducer(last_to_keep(log, p), p.epoch) for p in log.producers},
        log.truncations,
        now_ms,
    )


def last_to_keep(log: PartitionLog, producer: ProducerStateEntry) -> int:
    """The end of the batch of a producer that stays, empty if need be: its last one; −1 for none. Of those that do not expire, the last one that no change
    of leader can take away: with one that may be taken away, nothing would be left of them."""
    if producer.producer_id < FIRST_RESERVED_PRODUCER_ID:
        return producer.last_offset
    return next((one.last_offset for one in reversed(producer.batches) if one.last_offset < log.high_watermark), -1)


def can_clean(log: PartitionLog) -> bool:
    """Whether it is known which batches those are: only the last few are remembered, and all of them may be new."""
    return all(
        last_to_keep(log, producer) >= 0
        for producer in log.producers
        if producer.producer_id >= FIRST_RESERVED_PRODUCER_ID and producer.batches
    )


def groups(job: Job, end: int) -> list[list[Source]]:
    """The sources below offset `end`, each group to become one segment."""
    sources = {source.facts.base: source for source in job.sources if source.facts.base < end}
    if not sources:
        return []
    last = max(sources.values(), key=lambda source: source.facts.base).next_base
    found = grouped([source.facts for source in sources.values()], job.config, last)
    return [[sources[facts.base] for facts in group] for group in found]


def index_keys(files: OpenFiles, job: Job, offsets: KeyOffsets) -> Iterator[int]:
    """The first pass: fills `offsets` from the dirty part. OSError; CorruptSegment."""
    transactions = Transactions(aborted(files, job))
    first_dirty = offsets.first_dirty
    breather = Breather()
    for source in job.sources:
        if source.next_base <= first_dirty:
            continue
        moved = 0
        for position, batch, header in own(files, source).whole_batches(0, source.facts.size):
            if header.last_offset < first_dirty:
                continue
            try:
                if not noted(offsets, transactions, batch, header):
                    yield moved
                    return
            except KafkaError as error:
                raise CorruptSegment(source.segment.path, position, str(error)) from error
            moved += header.size
            if moved >= _STEP:
                yield moved
                moved = 0
            breather.worked(header)
        offsets.latest = max(offsets.latest, source.next_base - 1)  # there may be a hole at the segment's end
        yield moved


def second_pass(
    files: OpenFiles, job: Job, offsets: KeyOffsets, found: Sequence[Sequence[Source]], tally: Tally
) -> Compaction:
    """For the groups that `groups` found. Reads all transaction indexes: off the protocol's thread. OSError."""
    ends = frozenset((job.wanted.end, *(group[-1].next_base for group in found)))
    return Compaction(
        offsets, Transactions(aborted(files, job)), job.last_of_producer, job.config, ends, job.now_ms, tally
    )


def rewrite_group(files: OpenFiles, group: Sequence[Source], compaction: Compaction, new: Segment) -> Iterator[int]:
    """Writes what stays of a group into `new` and brings it to the device. OSError; CorruptSegment."""
    interval = compaction.config.index_interval_bytes
    waiting: list[Buffer] = []
    waiting_bytes = moved = 0
    breather = Breather()
    for source in group:
        for position, batch, header in own(files, source).whole_batches(0, source.facts.size):
            try:
                kept = compaction.keep(batch, header)
            except KafkaError as error:
                raise CorruptSegment(source.segment.path, position, str(error)) from error
            moved += header.size
            if kept is not None:
                stays = header if kept is batch else parse_batch_header(kept)
                new.added(new.size, len(kept), stays.last_offset, stays.max_timestamp, interval)
                waiting.append(kept)
                waiting_bytes += len(kept)
            if moved >= _STEP:
                new.file.append([b"".join(waiting)])
                yield moved + waiting_bytes
                waiting, waiting_bytes, moved = [], 0, 0
            breather.worked(header)
    new.file.append([b"".join(waiting)])
    for entry in compaction.transactions.kept:
        new.transactions.append(entry)
    compaction.transactions.kept.clear()
    new.seal()
    swap.sync(files.disk, new)
    yield moved + waiting_bytes


def aborted(files: OpenFiles, job: Job) -> list[AbortedTransaction]:
    """Of the whole log, oldest marker first."""
    found: list[AbortedTransaction] = []
    for source in job.sources:
        found += own(files, source).transactions.entries()
    return found + list(job.aborted_behind)


def own(files: OpenFiles, source: Source) -> Segment:
    """The segment through the cleaning's own open files: the log's belong to the protocol's thread."""
    of = source.segment
    return Segment(files, of.directory, of.base, size=source.facts.size, now_ms=of.created_ms)
