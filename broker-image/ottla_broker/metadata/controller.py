"""The active controller: every change of the cluster's metadata is decided and committed here, one at a time.

A command looks at the image, asks a pure plan for records, commits them and returns when they are committed (`Turn`). Brokers are
`brokers`' to deal with, replicas `replicas`', copies of other clusters' topics `mirrors`'; topics, configs and producer ids are dealt with here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from ottla_broker.config import (
    AUTO_LEADER_REBALANCE_ENABLE,
    BROKER_SESSION_TIMEOUT_MS,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    Config,
)
from ottla_broker.metadata import election
from ottla_broker.metadata.cluster_control import ClusterControl
from ottla_broker.metadata.config_plans import plan_config_change
from ottla_broker.metadata.election import TopicElectionRules
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.heartbeat_tracker import leadership_timeout_s
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_writer import CommitLog, Decision, MetadataWriter
from ottla_broker.metadata.mirror_control import MirrorControl
from ottla_broker.metadata.records import MetadataRecord, PartitionRecord, ProducerIdsRecord, TopicRecord
from ottla_broker.metadata.replication_control import ReplicationControl
from ottla_broker.metadata.topic_plans import NewTopic, TopicPlanner, plan_partition_growth, plan_topic_deletion
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_IDS_PER_CLUSTER = 1 << 40  # so many producer ids has each cluster, and there are some four million such ranges
T = TypeVar("T")


class Controller:
    """Commands raise KafkaError with the code that a client should see; with `validate_only` nothing is committed. `me`: the broker that
    this is; `pulses`: those it feels of the others."""

    def __init__(
        self,
        image: MetadataImage,
        log: CommitLog,
        runtime: Runtime,
        config: Config,
        me: int,
        pulses: FailureDetector | None = None,
    ) -> None:
        self._image = image
        self._runtime = runtime
        self._config = config
        self._me = me
        self._writer = MetadataWriter(image, log, config)
        self.cluster_control = ClusterControl(
            self._writer, config(BROKER_SESSION_TIMEOUT_MS) / 1000, leadership_timeout_s(config)
        )
        self.replication_control = ReplicationControl(self._writer)
        self.mirror_control = MirrorControl(self._writer, runtime, self.cluster_control.wait_until_all_heard)
        self._failure_detector = pulses or FailureDetector(me, image, config.inter_broker_listener)
        self._failed_brokers: asyncio.Queue[tuple[int, int, str]] = asyncio.Queue()

    def hears_majority(self, within_s: float) -> bool:
        return self._writer.log.hears_majority(within_s)

    async def run(self) -> None:
        """What a controller does unasked, until it is cancelled. First: who was controller before was silent or is gone, so nothing is led by it
        any more."""
        hook = self._failure_detector.on_broker_failed = lambda *gone: self._failed_brokers.put_nowait(gone)
        try:
            known = self._image.brokers.get(self._image.previous_controller_id)
            if known is not None and known.id != self._me:
                await run_and_log_failure(
                    self.cluster_control.fence_broker(
                        known.id, known.epoch, "it was the controller, and is not any more"
                    )
                )
            await run_and_log_failure(self.replication_control.clear_unneeded_eligible_replicas())
            for gone in self._failure_detector.failed_brokers():
                self._failed_brokers.put_nowait(gone)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fence_failed_brokers())
                tasks.create_task(self._fence_expired_sessions())
                tasks.create_task(self._restore_preferred_leaders())
        finally:
            if (
                self._failure_detector.on_broker_failed is hook
            ):  # else a later office of this broker has taken over already
                self._failure_detector.on_broker_failed = None

    async def _fence_failed_brokers(self) -> None:
        while True:
            await run_and_log_failure(self.cluster_control.fence_broker(*await self._failed_brokers.get()))

    async def _fence_expired_sessions(self) -> None:
        while True:
            await asyncio.sleep(self.cluster_control.heartbeats.check_interval_s)
            await run_and_log_failure(self.cluster_control.fence_expired_sessions())

    async def _restore_preferred_leaders(self) -> None:
        while True:
            await asyncio.sleep(self._config(LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS))
            if self._config(AUTO_LEADER_REBALANCE_ENABLE) and (
                moved := await run_and_log_failure(self.replication_control.restore_preferred_leaders())
            ):
                logger.info("%d partitions are led by their first replicas again", moved)

    # --- topics

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[UUID | KafkaError]:
        """In one commit; what came of each, in their order: its id or why not."""

        def plan() -> Decision[list[UUID | KafkaError]]:
            made, records, answers = TopicPlanner(self._image), list[MetadataRecord](), list[UUID | KafkaError]()
            for topic in topics:
                topic_id = self._runtime.new_uuid()
                try:
                    records += _with_initial_eligible_replicas(
                        made.plan_creation(topic, topic_id), self._writer.rules_for_config(topic.config)
                    )
                    answers.append(topic_id)
                except KafkaError as reason:
                    answers.append(reason)
            return [] if validate_only else records, answers

        await self.cluster_control.wait_until_all_heard()
        return await self._writer.execute(plan)

    async def create_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        def plan() -> list[MetadataRecord]:
            rules = self._writer.rules_for_config(self._image.topic_config(name))
            return _with_initial_eligible_replicas(plan_partition_growth(self._image, name, count, assignment), rules)

        await self.cluster_control.wait_until_all_heard()
        await self._commit(plan, validate_only=validate_only)

    async def delete_topic(self, name: str) -> None:
        await self._commit(lambda: plan_topic_deletion(self._image, name))

    # --- configs and producer ids

    async def alter_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Sets (or with None removes) keys of one resource. Values were validated by the caller against the table of settings."""
        await self._commit(
            lambda: plan_config_change(self._image, resource_type, name, changes, self._writer.rules_for_config),
            validate_only=validate_only,
        )

    async def allocate_producer_ids(self) -> range:
        """A block of ids that nobody else gets, ever: the first one lies at a random place, so that not even another cluster's producers, whose
        records are copied here, have the ids of ours (Kafka's begin at 0)."""

        def plan() -> Decision[range]:
            first = (
                self._image.next_producer_id or (self._runtime.random.getrandbits(22) + 1) * PRODUCER_IDS_PER_CLUSTER
            )
            return [ProducerIdsRecord(first + PRODUCER_ID_BLOCK_SIZE)], range(first, first + PRODUCER_ID_BLOCK_SIZE)

        return await self._writer.execute(plan)

    async def adopt_topics(self, broker: int, topics: Mapping[str, tuple[UUID, Mapping[int, int]]]) -> None:
        """Takes partition folders found on a first start into the metadata: name → (topic id, partition → latest leader epoch).

        The epoch is raised above the folder's, so that no client takes the new leader for an old one.
        """

        def plan() -> list[MetadataRecord]:
            records: list[MetadataRecord] = []
            for name, (topic_id, partitions) in sorted(topics.items()):
                records.append(TopicRecord(name, topic_id))
                records += [
                    PartitionRecord(
                        topic_id, partition, replicas=(broker,), isr=(broker,), leader=broker, leader_epoch=epoch + 1
                    )
                    for partition, epoch in sorted(partitions.items())
                ]
            return records

        await self._commit(plan)

    async def _commit(self, plan: Callable[[], Sequence[MetadataRecord]], *, validate_only: bool = False) -> None:
        def decided() -> Decision[None]:
            records = plan()
            return [] if validate_only else records, None

        await self._writer.execute(decided)


def _with_initial_eligible_replicas(
    records: Sequence[MetadataRecord], rules: TopicElectionRules
) -> list[MetadataRecord]:
    return [
        election.with_initial_eligible_replicas(record, rules) if isinstance(record, PartitionRecord) else record
        for record in records
    ]


async def run_and_log_failure(work: Awaitable[T]) -> T | None:
    """What nobody asked for is tried again at its next turn; a controller that has lost the lead is told so by others."""
    try:
        return await work
    except KafkaError as reason:
        logger.warning("the controller could not do its work: %s", reason)
        return None
