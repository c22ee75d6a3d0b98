"""The controller's part for mirrored topics and appended sources."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.metadata import appended_sources, mirror_plans
from ottla_broker.metadata.appended_sources import AppendedSourceDescription, NewAppendedSource
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_writer import MetadataWriter
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.topic_plans import TopicPlanner
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError


class MirrorControl:
    """Methods raise KafkaError with the plans' error codes. `wait_until_placeable`: see
    `ClusterControl.wait_until_all_heard`."""

    def __init__(
        self, writer: MetadataWriter, runtime: Runtime, wait_until_placeable: Callable[[], Awaitable[None]]
    ) -> None:
        self._writer = writer
        self._wait_until_placeable = wait_until_placeable
        self._runtime = runtime

    async def create_mirrored_topics(self, topics: Sequence[NewMirroredTopic]) -> list[UUID | KafkaError]:
        """Creates mirrored topics in one commit. Returns for each topic, in their order, its id or
        error.
        """

        def plan() -> tuple[list[MetadataRecord], list[UUID | KafkaError]]:
            planner, records, results = (
                TopicPlanner(self._writer.image),
                list[MetadataRecord](),
                list[UUID | KafkaError](),
            )
            for topic in topics:
                topic_id = self._runtime.new_uuid()
                try:
                    mirror_plans.check_mirror_replicates(self._writer.image, topic.mirror)
                    records += mirror_plans.plan_mirrored_topic(planner, topic, topic_id)
                    results.append(topic_id)
                except KafkaError as reason:
                    results.append(reason)
            return records, results

        await self._wait_until_placeable()
        return await self._writer.execute(plan)

    async def recreate_mirrored_topic(self, topic: NewMirroredTopic, old_id: UUID) -> None:
        """Replaces the mirrored topic `old_id` by a new one of the same name."""
        topic_id = self._runtime.new_uuid()
        await self._wait_until_placeable()
        await self._apply_if_replicating(
            topic.mirror, lambda image: mirror_plans.plan_recreation(image, topic, topic_id, old_id)
        )

    async def update_origins(
        self, topic_id: UUID, origins: tuple[str, ...], sources: tuple[AppendedSourceDescription, ...]
    ) -> None:
        """Updates the clusters through which a mirrored topic's records come, and the sources that
        are appended to its source.
        """
        await self._writer.apply_plan(lambda: mirror_plans.plan_origins(self._writer.image, topic_id, origins, sources))

    async def adopt_topic(self, topic: NewMirroredTopic, topic_id: UUID) -> None:
        """A topic with records of its own becomes mirrored."""
        await self._apply_if_replicating(topic.mirror, lambda image: mirror_plans.plan_adoption(image, topic, topic_id))

    async def fail_back(self, topic: NewMirroredTopic, topic_id: UUID) -> None:
        """A topic that has failed over is mirrored again."""
        await self._apply_if_replicating(topic.mirror, lambda image: mirror_plans.plan_failback(image, topic, topic_id))

    async def report_partition(self, report: MirrorReport) -> None:
        """Returns when the reported state is committed."""

        def plan() -> list[MetadataRecord]:
            if report.source_id is None:
                return mirror_plans.plan_report(self._writer.image, report)
            mirror_plans.check_leader(self._writer.image, report)
            return appended_sources.plan_source_report(
                self._writer.image, report.topic_id, report.source_id, report.partition, report.epochs, report.stopped
            )

        await self._writer.apply_plan(plan)

    async def add_source(self, source: NewAppendedSource) -> None:
        """Starts to append a source to a topic, or updates a known source."""
        topic_id = self._runtime.new_uuid()
        # Random: a log that was mirrored from another cluster may have marks of that cluster's
        # sources.
        producer_id = FIRST_RESERVED_PRODUCER_ID + self._runtime.random.getrandbits(61)
        await self._wait_until_placeable()
        await self._apply_if_replicating(
            source.mirror, lambda image: appended_sources.plan_source(image, source, topic_id, producer_id)
        )

    async def resume_source(self, topic_id: UUID, source_id: UUID) -> None:
        """Resumes the stopped partitions of a source."""
        await self._writer.apply_plan(lambda: appended_sources.plan_resumption(self._writer.image, topic_id, source_id))

    async def _apply_if_replicating(self, mirror: str, plan: Callable[[MetadataImage], list[MetadataRecord]]) -> None:
        """Raises INVALID_REQUEST when the mirror does not replicate."""

        def checked_plan() -> list[MetadataRecord]:
            mirror_plans.check_mirror_replicates(self._writer.image, mirror)
            return plan(self._writer.image)

        await self._writer.apply_plan(checked_plan)
