"""The controller's part that deals with copies of other clusters' topics."""

from collections.abc import Sequence
from uuid import UUID

from ottla_broker.metadata import mirror_plans
from ottla_broker.metadata.mirror_plans import NewMirror, Report
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.topic_plans import NewTopics
from ottla_broker.metadata.turn import Decision, Turn
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import KafkaError


class MirrorControl:
    """Commands raise KafkaError, or answer one for each of several wishes, with the plans' codes."""

    def __init__(self, turn: Turn, runtime: Runtime) -> None:
        self._turn = turn
        self._runtime = runtime

    async def create(self, wishes: Sequence[NewMirror]) -> list[UUID | KafkaError]:
        """In one commit; what came of each, in their order: its id or why not."""

        def plan() -> Decision[list[UUID | KafkaError]]:
            made, records, answers = NewTopics(self._turn.image), list[MetadataRecord](), list[UUID | KafkaError]()
            for wish in wishes:
                topic_id = self._runtime.new_uuid()
                try:
                    records += mirror_plans.creation(made, wish, topic_id)
                    answers.append(topic_id)
                except KafkaError as reason:
                    answers.append(reason)
            return records, answers

        return await self._turn.take(plan)

    async def recreate(self, wish: NewMirror, old_id: UUID) -> None:
        topic_id = self._runtime.new_uuid()
        await self._turn.carry_out(lambda: mirror_plans.recreation(self._turn.image, wish, topic_id, old_id))

    async def adopt(self, wish: NewMirror, topic_id: UUID) -> None:
        await self._turn.carry_out(lambda: mirror_plans.adoption(self._turn.image, wish, topic_id))

    async def report(self, told: Report) -> None:
        """Returns when it is committed."""
        await self._turn.carry_out(lambda: mirror_plans.report(self._turn.image, told))
