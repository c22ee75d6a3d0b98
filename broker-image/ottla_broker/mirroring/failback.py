"""Topics that become copies, and have records of their own: the old source comes back after a failover, or a failover is taken back.

For each partition that this broker leads, and of which the metadata do not say yet where it goes on:

1. The source's leader says which of our leader epochs it copied from which offset on, and where its own records begin. That and our log's epochs give
   the offset up to which the two logs are one (`lineage`). Who cannot say that proves nothing, and the partition stays as it is. Where a failover is taken back
   the metadata know that offset: it was a copy up to there.
2. What we have beyond is only cut off by consent (`on.divergence=Truncate`). It is written to a file first (`divergence`), and the committed offsets
   of groups that lie beyond are taken back to where it begins: a group that went on from there would pass over what the source has in its place.
3. The controller commits where the partition joins its source's, together with a new leader epoch; whoever leads in that cuts first (`mirrors`).

A broker that dies anywhere in this leaves a partition that is whole: with everything that it had, until 3 is committed; and from then on whoever leads
either has cut, or cuts before it copies anything.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla_broker.metadata.mirror_plans import NO_OFFSET, MirrorReport
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.diverged_records import first_diverged_offset, save_diverged_records
from ottla_broker.mirroring.lineage import epochs_below, find_divergence_offset, mirrored_end_offset
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.mirroring.rewinding import reset_offsets
from ottla_broker.mirroring.source_copies import fetch_epoch_history
from ottla_broker.mirroring.source_epochs import EpochEntries
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.message_reader import MalformedMessage

logger = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
STUCK_PAUSE_S: Final = 5.0
T = TypeVar("T")

Tell = Callable[[str, MirrorReport], Awaitable[None]]


@dataclass(slots=True, eq=False)
class FailbackPartition:
    """`diverging`: how many offsets are here beyond the common point, for whose end there is no consent; `why`: what it waits for."""

    partition: Partition
    topic: MirroredTopicRecord
    record: MirroredPartitionRecord
    leader_epoch: int
    reason: str = ""
    diverging_records: int = 0
    needs_operator: bool = False  # only a person can help

    @property
    def is_led(self) -> bool:
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch


@dataclass(frozen=True, slots=True)
class JoinPoint:
    """Where a partition joins. `epochs`: the source's leader epochs below; None: as the metadata know."""

    rejoiner: FailbackPartition
    at: int
    epochs: EpochEntries | None

    @property
    def first(self) -> int:
        """The first offset beyond."""
        return first_diverged_offset(self.rejoiner.partition.log, self.at)

    @property
    def cut(self) -> int:
        return max(self.rejoiner.partition.log.end - self.first, 0)


class MirrorFailback:
    """Of one mirror. `own`: this cluster's addresses, as they are when they are needed; `me`: this broker."""

    def __init__(self, me: int, link: MirrorConfig, tell: Tell, own: Callable[[], Sequence[tuple[str, int]]]) -> None:
        self.link = link
        self.partitions: dict[Partition, FailbackPartition] = {}
        self._me = me
        self._tell = tell
        self._own = own
        self._wanted = asyncio.Event()
        self._running = asyncio.get_running_loop().create_task(self._run(), name=f"mirror {link.name} joins")
        self._running.add_done_callback(self._ended)

    def follow(self, partition: Partition, topic: MirroredTopicRecord, known: MirroredPartitionRecord) -> None:
        before = self.partitions.get(partition)
        if before is None or not before.is_led or (before.topic, before.record) != (topic, known):
            self.partitions[partition] = FailbackPartition(partition, topic, known, partition.leader_epoch)
            self._wanted.set()

    def forget(self, partition: Partition) -> None:
        self.partitions.pop(partition, None)

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (reason := task.exception()) is not None:
            logger.error("mirror %s: %s", self.link.name, reason, exc_info=reason)

    def _holds(self, rejoiner: FailbackPartition) -> bool:
        return self.partitions.get(rejoiner.partition) is rejoiner and rejoiner.is_led

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            name = f"mirror-{self.link.name}-{self._me}-rejoining"
            source = self.link.source_client(name)
            own = Client(self._own(), client_id=name)
            try:
                while self.partitions:
                    await self._once(source, own)
                    stuck = all(one.needs_operator for one in self.partitions.values())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(STUCK_PAUSE_S if stuck else PAUSE_S):
                            await self._wanted.wait()
                    self._wanted.clear()
            finally:
                await source.close()
                await own.close()

    async def _once(self, source: Client, own: Client) -> None:
        """Takes every partition as far as it can go now."""
        saved: list[JoinPoint] = []
        for rejoiner in tuple(self.partitions.values()):
            decided = await self._trying(rejoiner, self._decide(source, rejoiner))
            if decided is not None and await self._trying(rejoiner, self._save(decided)):
                saved.append(decided)
        cut = {
            (one.rejoiner.partition.topic, one.rejoiner.partition.partition): one.at
            for one in saved
            if one.cut and self._holds(one.rejoiner)
        }
        try:
            await reset_offsets(own, cut)
        except (KafkaError, OSError, TimeoutError) as reason:
            logger.info("mirror %s: groups cannot be taken back: %s", self.link.name, reason or "no answer in time")
            return
        for one in saved:
            await self._trying(one.rejoiner, self._join(one))

    async def _trying(self, rejoiner: FailbackPartition, work: Coroutine[object, object, T]) -> T | None:
        """None when it is to be tried again later, and the rejoiner says why."""
        try:
            return await work
        except (KafkaError, OSError, TimeoutError, MalformedMessage) as reason:
            self._says(rejoiner, str(reason) or "no answer in time")
            return None

    def _says(self, rejoiner: FailbackPartition, why: str, *, diverging: int = 0, stuck: bool = False) -> None:
        if stuck and rejoiner.reason != why:
            logger.warning("%r is stopped: %s", rejoiner.partition, why)
        rejoiner.reason, rejoiner.diverging_records, rejoiner.needs_operator = why, diverging, stuck

    async def _decide(self, source: Client, rejoiner: FailbackPartition) -> JoinPoint | None:
        partition, log = rejoiner.partition, rejoiner.partition.log
        if rejoiner.record.end != NO_OFFSET and not rejoiner.topic.adopted:
            return self._by_consent(_by_failover(rejoiner))
        if rejoiner.record.end == NO_OFFSET and rejoiner.record.joined != NO_OFFSET:
            return JoinPoint(
                rejoiner, rejoiner.record.joined, None
            )  # an earlier leader's word, who has not cut, or not everywhere
        lineage = await fetch_epoch_history(source, rejoiner.topic.source_topic, partition.partition)
        if not self._holds(rejoiner):
            return None
        if lineage is None or lineage.source_id != rejoiner.topic.topic:
            self._says(
                rejoiner,
                "the source does not say up to where its log and this one are the same: it must be an Ottla cluster whose copy of this topic has "
                "failed over",
                stuck=True,
            )
            return None
        epochs = tuple(log.epochs.entries())
        if log.end > log.start and not epochs:
            self._says(rejoiner, "the leader epochs of the records that are here are not known", stuck=True)
            return None
        at = find_divergence_offset(epochs, log.end, lineage.copied, lineage.end)
        decided = JoinPoint(rejoiner, at, epochs_below(lineage.epochs, at))
        if rejoiner.record.end != NO_OFFSET and (own := _by_failover(rejoiner)).at > at:
            return self._by_consent(own)  # it was the source's copy again since that was this one's
        return self._by_consent(decided, f", whose own follow from {lineage.end} on")

    def _by_consent(self, decided: JoinPoint, more: str = "") -> JoinPoint | None:
        """`more`: about the source, in words."""
        if not decided.cut or self.link.truncates_on_divergence:
            return decided
        self._says(
            decided.rejoiner,
            f"{decided.cut} records, from offset {decided.first} to {decided.rejoiner.partition.log.end - 1}, are here and not at the source{more}; "
            "on.divergence=Truncate writes them to a file and cuts them off",
            diverging=decided.cut,
            stuck=True,
        )
        return None

    async def _save(self, decided: JoinPoint) -> bool:
        rejoiner, at = decided.rejoiner, decided.at
        if decided.cut and self._holds(rejoiner):
            folder = await save_diverged_records(rejoiner.partition.log, at, rejoiner.leader_epoch)
            logger.warning(
                "%r: what it has from offset %d on is saved in %s", rejoiner.partition, decided.first, folder
            )
        return self._holds(rejoiner)

    async def _join(self, decided: JoinPoint) -> None:
        rejoiner, partition = decided.rejoiner, decided.rejoiner.partition
        if not self._holds(rejoiner):
            return
        report = MirrorReport(
            self._me,
            partition.topic_id,
            partition.partition,
            rejoiner.leader_epoch,
            epochs=decided.epochs,
            joined=decided.at,
            cut=decided.cut,
        )
        logger.info("%r: it and its source are one log up to offset %d", partition, decided.at)
        await self._tell(partition.topic, report)


def _by_failover(rejoiner: FailbackPartition) -> JoinPoint:
    """It copies on where it failed over: it was the source's log up to there, whatever the source is. Whether that still is so, the source says to the
    first fetch."""
    known, log = rejoiner.record, rejoiner.partition.log
    at = mirrored_end_offset(tuple(log.epochs.entries()), log.end, known.end, known.end_epoch)
    return JoinPoint(rejoiner, at, epochs_below(known.epochs, at))
