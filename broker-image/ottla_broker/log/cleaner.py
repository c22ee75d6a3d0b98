"""The cleaner: compacts the logs of one log directory, the dirtiest first, one at a time.

What is chosen and what is kept is decided in `log.cleanable` and `log.compaction`; this is the doing. A group of closed segments, which nobody
writes any more, is read and rewritten off the protocol's thread in steps of a MiB, so that the cleaning can be slowed
(log.cleaner.io.max.bytes.per.second) and stopped. `log.swap` then puts the new segment in the group's place, on the protocol's thread.

Groups go from old to new and a cleaning that cannot go on stops for good: a newer segment whose tombstones have gone never stands behind an older
one that has not been cleaned.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import sleep
from typing import Final

from ottla_broker.log import names, swap
from ottla_broker.log.checkpoints import encode_offsets, read_offsets
from ottla_broker.log.cleanable import SegmentFacts, ToClean, filthiest, grouped, must_know_timestamps, to_clean
from ottla_broker.log.compaction import Compaction, KeyOffsets, LastOfProducer, Tally, Transactions, noted
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import Disk
from ottla_broker.log.offset_index import ENTRY as OFFSET_ENTRY
from ottla_broker.log.open_files import OpenFiles
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.segment import CorruptSegment, Segment
from ottla_broker.log.storage import Storage, is_full
from ottla_broker.log.time_index import ENTRY as TIME_ENTRY
from ottla_broker.log.txn_index import AbortedTransaction, TransactionIndex
from ottla_broker.wire.errors import KafkaError

log = logging.getLogger(__name__)

CHECKPOINT: Final = "cleaner-offset-checkpoint"
_STEP: Final = 1 << 20  # bytes read between two looks at the clock
_WRITE: Final = 1 << 20

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """log.cleaner.dedupe.buffer.size in bytes; log.cleaner.io.max.bytes.per.second, reading and writing together."""

    dedupe_buffer_bytes: int = 128 << 20
    io_max_bytes_per_second: float = float("inf")


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment as it was when the cleaning began."""

    segment: Segment
    base: int
    size: int


@dataclass(slots=True)
class Job:
    """One cleaning of one log: what the thread needs to know, taken down on the protocol's thread."""

    log: PartitionLog
    config: LogConfig
    range: ToClean
    sources: list[Source]  # from the log's start to `range.end`
    bounds: list[int]  # where each source ends: the base of the next segment
    aborted: list[AbortedTransaction]  # of the segments behind `range.end`; the sources' are read by the thread
    last_of_producer: Mapping[int, LastOfProducer]
    truncations: int
    now_ms: int


class CleaningStopped(Exception):
    """The log changed under the cleaning (truncated, deleted, retention): it begins anew another time."""


class Cleaner:
    """`checkpoints`: where the last cleaning of each log ended. `uncleanable`: why a log is left alone until the next start.
    `logs` is the log directory's own mapping, so that new and deleted logs are seen."""

    def __init__(
        self, storage: Storage, directory: str, logs: Mapping[Partition, PartitionLog], settings: CleanerSettings
    ) -> None:
        self.storage = storage
        self.logs = logs
        self.settings = settings
        self.path = f"{directory}/{CHECKPOINT}"
        self.checkpoints = self._read_checkpoints()
        self.uncleanable: dict[Partition, str] = {}
        self._truncations: dict[Partition, int] = {}

    def _read_checkpoints(self) -> dict[Partition, int]:
        try:
            return read_offsets(self.storage.disk, self.path)
        except ValueError as error:
            log.warning("%s; every compacted log is cleaned from its start", error)
            return {}

    def choose(self) -> Job | None:
        """The log that is to be cleaned next; None when none has to be."""
        now_ms = self.storage.runtime.now_ms()
        found = filthiest(
            (partition, wanted)
            for partition, of in self.logs.items()
            if of.config.cleanup_compact and len(of.segments) > 1 and of.failed is None
            if partition not in self.uncleanable and (wanted := self._wanted(partition, of, now_ms)) is not None
        )
        return None if found is None else job(self.logs[found[0]], found[1], now_ms)

    def _wanted(self, partition: Partition, of: PartitionLog, now_ms: int) -> ToClean | None:
        if self._truncations.setdefault(partition, of.truncations) != of.truncations:
            # What was clean may have been replaced by something else.
            self._truncations[partition] = of.truncations
            self.checkpoints.pop(partition, None)
        try:
            return to_clean(
                facts(of),
                of.config,
                start=of.start,
                end=of.end,
                stable=of.last_stable_offset,
                checkpoint=self.checkpoints.get(partition),
                now_ms=now_ms,
            )
        except CorruptSegment as error:
            self._give_up(of, str(error))
            return None
        except OSError as error:
            of.io_failed("compaction", of.directory, error)
            return None

    async def clean_filthiest(self) -> Tally | None:
        """Cleans one log; None when there is nothing to clean. Its failures are its own: they are logged, and the log waits for
        another time, is left alone (`uncleanable`) or goes offline."""
        chosen = self.choose()
        if chosen is None:
            return None
        of = chosen.log
        tally = Tally()
        try:
            reached = await self._clean(chosen, tally)
            await self._checkpoint((of.topic, of.partition), reached)
        except (CleaningStopped, FileNotFoundError) as error:
            log.info("compaction of %s-%d stopped: %s", of.topic, of.partition, error)
        except (CorruptSegment, KafkaError) as error:
            self._give_up(of, str(error))
        except OSError as error:
            if is_full(error):
                log.warning("compaction of %s-%d: %s", of.topic, of.partition, error)
            else:
                of.io_failed("compaction", of.directory, error)
        return tally

    def _give_up(self, of: PartitionLog, why: str) -> None:
        log.error("%s-%d can not be compacted and is left alone: %s", of.topic, of.partition, why)
        self.uncleanable[of.topic, of.partition] = why

    async def _clean(self, chosen: Job, tally: Tally) -> int:
        """Returns the offset that it reached."""
        files = OpenFiles(self.storage.disk)
        try:
            offsets = KeyOffsets(self.settings.dedupe_buffer_bytes, chosen.range.first_dirty)
            await self._paced(indexed(files, chosen, offsets))
            compaction = compaction_of(files, chosen, offsets, tally)
            for group in groups_of(chosen, offsets.latest + 1):
                new = swap.cleaned_segment(files, chosen.log.directory, group[0].base, chosen.now_ms)
                try:
                    await self._paced(rewritten(files, chosen, group, compaction, new))
                    await self.storage.runtime.offload(finished, self.storage.disk, new)
                    if not still_there(chosen, group):
                        raise CleaningStopped(f"segments from {group[0].base} on have changed")
                except BaseException:
                    files.close_all()
                    swap.discard(self.storage.disk, new)
                    raise
                files.close_all()
                swap.swap_in(chosen.log, [source.segment for source in group], new, self.storage.runtime.now_ms())
                await self.storage.runtime.offload(self.storage.disk.sync_directory, chosen.log.directory)
            return offsets.latest + 1
        finally:
            files.close_all()

    async def _paced(self, steps: Iterator[int]) -> None:
        """Runs steps off the protocol's thread; each says how many bytes it moved."""
        loop = asyncio.get_running_loop()
        began, moved = loop.time(), 0
        while (step := await self.storage.runtime.offload(next, steps, None)) is not None:
            moved += step
            ahead = moved / self.settings.io_max_bytes_per_second - (loop.time() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)

    async def _checkpoint(self, partition: Partition, reached: int) -> None:
        self.checkpoints[partition] = reached
        self.checkpoints = {known: at for known, at in self.checkpoints.items() if known in self.logs}
        disk = self.storage.disk
        await self.storage.runtime.offload(disk.replace_file, self.path, encode_offsets(self.checkpoints))


def facts(of: PartitionLog) -> list[SegmentFacts]:
    """Index sizes are those that a new index of so many bytes of log would have at most."""
    largest, first = must_know_timestamps(of.config)
    active = of.segments.active
    return [
        SegmentFacts(
            segment.base,
            segment.size,
            segment.largest.timestamp if largest and segment is not active else -1,
            segment.first_batch_timestamp() if first and segment is not active and segment.size else -1,
            OFFSET_ENTRY * (segment.size // of.config.index_interval_bytes + 1),
            TIME_ENTRY * (segment.size // of.config.index_interval_bytes + 1),
        )
        for segment in of.segments
    ]


def job(of: PartitionLog, wanted: ToClean, now_ms: int) -> Job:
    segments = list(of.segments)
    sources = [Source(s, s.base, s.size) for s in segments if s.base < wanted.end]
    behind = segments[len(sources) :]
    return Job(
        of,
        of.config,
        wanted,
        sources,
        [segment.base for segment in segments[1 : len(sources) + 1]],
        [entry for segment in behind for entry in segment.transactions.entries()],
        {p.producer_id: LastOfProducer(p.last_offset, p.epoch) for p in of.producers},
        of.truncations,
        now_ms,
    )


def still_there(chosen: Job, group: list[Source]) -> bool:
    """Whether the log still consists of the segments that were read, unchanged."""
    of = chosen.log
    present = set(map(id, of.segments))
    return (
        of.failed is None
        and of.truncations == chosen.truncations
        and all(id(source.segment) in present and source.segment.size == source.size for source in group)
    )


def groups_of(chosen: Job, end: int) -> list[list[Source]]:
    """The sources below `end`, in groups of which each becomes one segment."""
    of_base = {source.base: source for source in chosen.sources}
    wanted = [fact for fact in facts_of_sources(chosen) if fact.base < end]
    return [
        [of_base[fact.base] for fact in group]
        for group in grouped(wanted, chosen.config, chosen.bounds[len(wanted) - 1])
    ]


def facts_of_sources(chosen: Job) -> list[SegmentFacts]:
    interval = chosen.config.index_interval_bytes
    return [
        SegmentFacts(
            source.base,
            source.size,
            offset_index_size=OFFSET_ENTRY * (source.size // interval + 1),
            time_index_size=TIME_ENTRY * (source.size // interval + 1),
        )
        for source in chosen.sources
    ]
