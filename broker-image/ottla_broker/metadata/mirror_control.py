"""The controller's part that deals with copies of other clusters' topics."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.metadata import appended_plans, mirror_plans
from ottla_broker.metadata.appended_plans import NewAppendedSource
from ottla_broker.metadata.appended_sources import CarriedSource
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.topic_plans import NewTopics
from ottla_broker.metadata.turn import Decision, Turn
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError


class MirrorControl:
    """Commands raise KafkaError, or answer one for each of several wishes, with the plans' codes. `may_place`: waits until new partitions may be placed."""

    def __init__(self, turn: Turn, runtime: Runtime, may_place: Callable[[], Awaitable[None]]) -> None:
        self._turn = turn
        self._may_place = may_place
        self._runtime = runtime

    async def create_mirrored_topics(self, wishes: Sequence[NewMirroredTopic]) -> list[UUID | KafkaError]:
        """In one commit; what came of each, in their order: its id or why not."""

        def plan() -> Decision[list[UUID | KafkaError]]:
            made, records, answers = NewTopics(self._turn.image), list[MetadataRecord](), list[UUID | KafkaError]()
            for wish in wishes:
                topic_id = self._runtime.new_uuid()
                try:
                    mirror_plans.must_replicate(self._turn.image, wish.mirror)
                    records += mirror_plans.creation(made, wish, topic_id)
                    answers.append(topic_id)
                except KafkaError as reason:
                    answers.append(reason)
            return records, answers

        await self._may_place()
        return await self._turn.take(plan)

    async def recreate_mirrored_topic(self, wish: NewMirroredTopic, old_id: UUID) -> None:
        topic_id = self._runtime.new_uuid()
        await self._may_place()
        await self._carry_out(wish.mirror, lambda image: mirror_plans.recreation(image, wish, topic_id, old_id))

    async def update_origins(
        self, topic_id: UUID, origins: tuple[str, ...], sources: tuple[CarriedSource, ...]
    ) -> None:
        """By way of which clusters a copy's records come, and which sources are appended to what it is a copy of."""
        await self._turn.carry_out(lambda: mirror_plans.traced(self._turn.image, topic_id, origins, sources))

    async def adopt_topic(self, wish: NewMirroredTopic, topic_id: UUID) -> None:
        await self._carry_out(wish.mirror, lambda image: mirror_plans.adoption(image, wish, topic_id))

    async def fail_back(self, wish: NewMirroredTopic, topic_id: UUID) -> None:
        """What has failed over becomes a copy again."""
        await self._carry_out(wish.mirror, lambda image: mirror_plans.taking_back(image, wish, topic_id))

    async def report_partition(self, told: MirrorReport) -> None:
        """Returns when it is committed."""

        def plan() -> list[MetadataRecord]:
            if told.source_id is None:
                return mirror_plans.report(self._turn.image, told)
            mirror_plans.led(self._turn.image, told)
            return appended_plans.report(self._turn.image, told, told.source_id)

        await self._turn.carry_out(plan)

    async def add_source(self, wish: NewAppendedSource) -> None:
        """A source is appended to a topic from now on, or what is known of it is brought up to date."""
        topic_id = self._runtime.new_uuid()
        # A random one: a log that was copied from another cluster, and is written to here, may hold marks of that cluster's sources.
        producer_id = FIRST_RESERVED_PRODUCER_ID + self._runtime.random.getrandbits(61)
        await self._may_place()
        await self._carry_out(wish.mirror, lambda image: appended_plans.plan_source(image, wish, topic_id, producer_id))

    async def resume_source(self, topic_id: UUID, source_id: UUID) -> None:
        """What stood still of this source goes on."""
        await self._turn.carry_out(lambda: appended_plans.resumption(self._turn.image, topic_id, source_id))

    async def _carry_out(self, mirror: str, plan: Callable[[MetadataImage], list[MetadataRecord]]) -> None:
        """What only a mirror that replicates may have done."""

        def allowed() -> list[MetadataRecord]:
            mirror_plans.must_replicate(self._turn.image, mirror)
            return plan(self._turn.image)

        await self._turn.carry_out(allowed)
