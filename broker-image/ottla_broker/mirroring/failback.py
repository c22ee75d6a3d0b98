"""Failback: a topic with records of its own becomes mirrored, after its mirror has failed over or
after its own failover.

For each partition that this broker leads, until its join offset is in the metadata and its log is
truncated there:

1. The source's leader reports which of this cluster's leader epochs it mirrored and where its own
   records begin. With the epochs of the log here that gives the offset below which both logs are
   identical (`source_epochs`). A source that reports nothing proves nothing, and the partition
   stays as it is. When a failover is reverted, the metadata contain the offset.
2. Records beyond it are truncated only with `on.divergence=Truncate`. They are saved to a
   file before (`failback_truncation`), and committed group offsets beyond are reset: a group there
   would skip the source's records.
3. The controller commits the join offset together with a new leader epoch. The leader of that epoch
   truncates first (`mirror_manager`).

If a broker crashes during this, the partition keeps all of its records until step 3 is committed.
From then on every leader has truncated, or truncates before it mirrors anything.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.counted_nouns import count_noun
from ottla_broker.event_timeout import wait_for_event
from ottla_broker.metadata.mirror_plans import NO_OFFSET, MirrorReport
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.failback_truncation import first_diverged_offset, save_diverged_records
from ottla_broker.mirroring.group_offsets import reset_offsets
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.mirroring.mirrored_partition import SendReport
from ottla_broker.mirroring.source_cluster import fetch_epoch_history
from ottla_broker.mirroring.source_epochs import (
    EpochEntries,
    epochs_below,
    find_divergence_offset,
    mirrored_end_offset,
)
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 1.0
BLOCKED_RETRY_PAUSE_S: Final = 5.0  # while every partition waits for a person (`needs_operator`)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class FailbackPartition:
    """A partition that this broker leads, in one leader epoch.

    `diverging_records`: number of offsets from the join offset to the log's end, while the mirror's
    config does not allow their truncation. `reason`: what the partition waits for.
    `needs_operator`: only a change of settings or of the source ends the wait.
    """

    partition: Partition
    topic: MirroredTopicRecord
    record: MirroredPartitionRecord
    leader_epoch: int
    reason: str = ""
    diverging_records: int = 0
    needs_operator: bool = False

    @property
    def is_leader(self) -> bool:
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    def set_waiting(self, reason: str, *, diverging_records: int = 0, needs_operator: bool = False) -> None:
        """Stores why the failback does not go on for now."""
        if needs_operator and self.reason != reason:
            logger.warning("%r: the failback is blocked: %s", self.partition, reason)
        self.reason, self.diverging_records, self.needs_operator = reason, diverging_records, needs_operator


@dataclass(frozen=True, slots=True)
class JoinPoint:
    """The offset at which a partition joins its source's log.

    `epochs`: the source's leader epochs below it; None if those in the metadata remain.
    """

    target: FailbackPartition
    offset: int
    epochs: EpochEntries | None

    @property
    def first_diverged(self) -> int:
        """Offset from which on records are to be truncated."""
        return first_diverged_offset(self.target.partition.log, self.offset)

    @property
    def diverged_count(self) -> int:
        return max(self.target.partition.log.end - self.first_diverged, 0)


@dataclass(eq=False, repr=False)
class MirrorFailback:
    """The partitions of one mirror that fail back on this broker.

    `_target_client` creates a client of this cluster with a client id.
    """

    _broker_id: int
    config: MirrorConfig
    _send_report: SendReport
    _target_client: Callable[[str], Client]
    partitions: dict[Partition, FailbackPartition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._added = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._tasks.start(self._run())

    def add_partition(self, partition: Partition, topic: MirroredTopicRecord, record: MirroredPartitionRecord) -> None:
        before = self.partitions.get(partition)
        if before is None or not before.is_leader or (before.topic, before.record) != (topic, record):
            self.partitions[partition] = FailbackPartition(partition, topic, record, partition.leader_epoch)
            self._added.set()

    def remove_partition(self, partition: Partition) -> None:
        self.partitions.pop(partition, None)

    async def close(self) -> None:
        await self._tasks.cancel()

    def _is_current(self, target: FailbackPartition) -> bool:
        return self.partitions.get(target.partition) is target and target.is_leader

    async def _run(self) -> None:
        """Advances the partitions while there are some, until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            client_id = f"mirror-{self.config.name}-{self._broker_id}-rejoining"
            source = self.config.source_client(client_id)
            own = self._target_client(client_id)
            try:
                while self.partitions:
                    await self._advance_partitions(source, own)
                    is_blocked = all(it.needs_operator for it in self.partitions.values())
                    await wait_for_event(self._added, BLOCKED_RETRY_PAUSE_S if is_blocked else RETRY_PAUSE_S)
                    self._added.clear()
            finally:
                await source.close()
                await own.close()

    async def _advance_partitions(self, source: Client, own: Client) -> None:
        """Takes every partition as far as possible. `own`: a client of this cluster.

        Group offsets are reset once, for all partitions together.
        """
        saved: list[JoinPoint] = []
        for target in tuple(self.partitions.values()):
            point = await self._attempt(target, self._find_join_point(source, target))
            if point is not None and await self._attempt(target, self._save_records(point)):
                saved.append(point)
        ends = {
            (it.target.partition.topic, it.target.partition.partition): it.offset
            for it in saved
            if it.diverged_count and self._is_current(it.target)
        }
        try:
            await reset_offsets(own, ends)
        except (KafkaError, OSError, TimeoutError) as reason:
            why = reason or "no response in time"
            logger.info("mirror %s: cannot reset group offsets, retrying: %s", self.config.name, why)
            return
        for point in saved:
            await self._attempt(point.target, self._report_join(point))

    async def _attempt(self, target: FailbackPartition, work: Coroutine[object, object, T]) -> T | None:
        """The result of the work. None also if it failed and must be retried."""
        try:
            return await work
        except (KafkaError, OSError, TimeoutError) as reason:
            target.set_waiting(str(reason) or "no response in time")
            return None

    async def _find_join_point(self, source: Client, target: FailbackPartition) -> JoinPoint | None:
        """None if the partition has to wait."""
        partition, log, record = target.partition, target.partition.log, target.record
        if record.end != NO_OFFSET and not target.topic.adopted:
            return self._check_consent(_failover_point(target))
        if record.end == NO_OFFSET and record.joined != NO_OFFSET:
            # An earlier leader reported the offset, and not every replica has truncated.
            return JoinPoint(target, record.joined, None)
        history = await fetch_epoch_history(source, target.topic.source_topic, partition.partition)
        if not self._is_current(target):
            return None
        if history is None or history.source_id != target.topic.topic:
            target.set_waiting(
                "the source does not report up to which offset its log is identical to this one: it must be an Ottla"
                " cluster whose mirror of this topic has failed over",
                needs_operator=True,
            )
            return None
        epochs = tuple(log.epochs.entries())
        if log.end > log.start and not epochs:
            target.set_waiting("the leader epochs of the records in this log are not known", needs_operator=True)
            return None
        offset = find_divergence_offset(epochs, log.end, history.mirrored_epochs, history.failover_offset)
        point = JoinPoint(target, offset, epochs_below(history.epochs, offset))
        if record.end != NO_OFFSET and (own := _failover_point(target)).offset > offset:
            # This partition mirrored the source again after the source had mirrored it.
            return self._check_consent(own)
        return self._check_consent(point, f" (its own records begin at offset {history.failover_offset})")

    def _check_consent(self, point: JoinPoint, about_source: str = "") -> JoinPoint | None:
        """Returns the point. None if records would be truncated without `on.divergence=Truncate`.
        `about_source`: for the reason, where the source's own records begin.
        """
        if not point.diverged_count or self.config.truncates_on_divergence:
            return point
        first, last = point.first_diverged, point.target.partition.log.end - 1
        offsets = f"from offset {first} to {last}, are" if point.diverged_count > 1 else f"at offset {first}, is"
        point.target.set_waiting(
            f"{count_noun(point.diverged_count, 'record')}, {offsets} not at the source"
            f"{about_source}; on.divergence=Truncate saves them to a file and truncates them",
            diverging_records=point.diverged_count,
            needs_operator=True,
        )
        return None

    async def _save_records(self, point: JoinPoint) -> bool:
        """Saves the records to be truncated. False if this broker's leader epoch is over."""
        target = point.target
        if point.diverged_count and self._is_current(target):
            folder = await save_diverged_records(target.partition.log, point.offset, target.leader_epoch)
            logger.warning("%r: saved records from offset %d on to %s", target.partition, point.first_diverged, folder)
        return self._is_current(target)

    async def _report_join(self, point: JoinPoint) -> None:
        target, partition = point.target, point.target.partition
        if not self._is_current(target):
            return
        report = MirrorReport(
            self._broker_id,
            partition.topic_id,
            partition.partition,
            target.leader_epoch,
            epochs=point.epochs,
            joined=point.offset,
            cut=point.diverged_count,
        )
        logger.info("%r: joining the source's log at offset %d", partition, point.offset)
        await self._send_report(partition.topic, report)


def _failover_point(target: FailbackPartition) -> JoinPoint:
    """The offset of the failover, below which the log is identical to the source's.

    The source checks that at the first fetch.
    """
    record, log = target.record, target.partition.log
    offset = mirrored_end_offset(tuple(log.epochs.entries()), log.end, record.end, record.end_epoch)
    return JoinPoint(target, offset, epochs_below(record.epochs, offset))
