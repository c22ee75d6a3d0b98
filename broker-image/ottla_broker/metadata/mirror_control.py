"""The controller's part that deals with copies of other clusters' topics."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.metadata import appended_plans, mirror_plans
from ottla_broker.metadata.appended_plans import NewAppendedSource
from ottla_broker.metadata.appended_sources import CarriedSource
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_writer import Decision, MetadataWriter
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.topic_plans import TopicPlanner
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError


class MirrorControl:
    """Commands raise KafkaError, or answer one for each of several wishes, with the plans' codes. `may_place`: waits until new partitions may be placed."""

    def __init__(self, turn: MetadataWriter, runtime: Runtime, may_place: Callable[[], Awaitable[None]]) -> None:
        self._writer = turn
        self._wait_until_placeable = may_place
        self._runtime = runtime

    async def create_mirrored_topics(self, wishes: Sequence[NewMirroredTopic]) -> list[UUID | KafkaError]:
        """In one commit; what came of each, in their order: its id or why not."""

        def plan() -> Decision[list[UUID | KafkaError]]:
            made, records, answers = TopicPlanner(self._writer.image), list[MetadataRecord](), list[UUID | KafkaError]()
            for wish in wishes:
                topic_id = self._runtime.new_uuid()
                try:
                    mirror_plans.check_mirror_replicates(self._writer.image, wish.mirror)
                    records += mirror_plans.plan_mirrored_topic(made, wish, topic_id)
                    answers.append(topic_id)
                except KafkaError as reason:
                    answers.append(reason)
            return records, answers

        await self._wait_until_placeable()
        return await self._writer.execute(plan)

    async def recreate_mirrored_topic(self, wish: NewMirroredTopic, old_id: UUID) -> None:
        topic_id = self._runtime.new_uuid()
        await self._wait_until_placeable()
        await self._apply_replicating_plan(
            wish.mirror, lambda image: mirror_plans.plan_recreation(image, wish, topic_id, old_id)
        )

    async def update_origins(
        self, topic_id: UUID, origins: tuple[str, ...], sources: tuple[CarriedSource, ...]
    ) -> None:
        """By way of which clusters a copy's records come, and which sources are appended to what it is a copy of."""
        await self._writer.apply_plan(lambda: mirror_plans.plan_origins(self._writer.image, topic_id, origins, sources))

    async def adopt_topic(self, wish: NewMirroredTopic, topic_id: UUID) -> None:
        await self._apply_replicating_plan(wish.mirror, lambda image: mirror_plans.plan_adoption(image, wish, topic_id))

    async def fail_back(self, wish: NewMirroredTopic, topic_id: UUID) -> None:
        """What has failed over becomes a copy again."""
        await self._apply_replicating_plan(wish.mirror, lambda image: mirror_plans.plan_failback(image, wish, topic_id))

    async def report_partition(self, told: MirrorReport) -> None:
        """Returns when it is committed."""

        def plan() -> list[MetadataRecord]:
            if told.source_id is None:
                return mirror_plans.plan_report(self._writer.image, told)
            mirror_plans.check_leader(self._writer.image, told)
            return appended_plans.plan_source_report(self._writer.image, told, told.source_id)

        await self._writer.apply_plan(plan)

    async def add_source(self, wish: NewAppendedSource) -> None:
        """A source is appended to a topic from now on, or what is known of it is brought up to date."""
        topic_id = self._runtime.new_uuid()
        # A random one: a log that was copied from another cluster, and is written to here, may hold marks of that cluster's sources.
        producer_id = FIRST_RESERVED_PRODUCER_ID + self._runtime.random.getrandbits(61)
        await self._wait_until_placeable()
        await self._apply_replicating_plan(
            wish.mirror, lambda image: appended_plans.plan_source(image, wish, topic_id, producer_id)
        )

    async def resume_source(self, topic_id: UUID, source_id: UUID) -> None:
        """What stood still of this source goes on."""
        await self._writer.apply_plan(lambda: appended_plans.plan_resumption(self._writer.image, topic_id, source_id))

    async def _apply_replicating_plan(self, mirror: str, plan: Callable[[MetadataImage], list[MetadataRecord]]) -> None:
        """What only a mirror that replicates may have done."""

        def allowed() -> list[MetadataRecord]:
            mirror_plans.check_mirror_replicates(self._writer.image, mirror)
            return plan(self._writer.image)

        await self._writer.apply_plan(allowed)
