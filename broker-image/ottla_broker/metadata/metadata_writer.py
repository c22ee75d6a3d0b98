"""Changes of the cluster's metadata, one at a time: decide from the image, commit, and only then let the next decide.

The lock makes deciding and committing one step, so no plan works from an image that another is about to change. It is held until it is known what became of
the records, even when whoever wanted them waits no longer: what was appended may be committed all the same. Plans are pure and quick; what they cost
together is one commit each, so whatever concerns many partitions is one plan.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from ottla_broker.config import (
    TOPIC_FLUSH_MESSAGES,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    Config,
)
from ottla_broker.metadata.broker_plans import TopicRulesLookup
from ottla_broker.metadata.election import TopicElectionRules
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.records import MetadataRecord

T = TypeVar("T")

Decision = tuple[Sequence[MetadataRecord], T]
"""Records to commit (none: nothing is to be done), and what to answer once they are committed."""


class CommitLog(Protocol):
    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """All of `records` or none, applied to the image when it returns. KafkaError NOT_CONTROLLER when the lead was lost, and then
        they may or may not be committed; KAFKA_STORAGE_ERROR when the disk refuses."""
        ...

    def hears_majority(self, within_s: float) -> bool:
        """Whether a majority of the metadata log's members was heard so lately: without, there may be another controller already."""
        ...


class MetadataWriter:
    """`image` is what plans look at; `config` gives topics' rules where topics say nothing."""

    def __init__(self, image: MetadataImage, quorum: CommitLog, config: Config) -> None:
        self.image = image
        self.log = quorum
        self._config = config
        self._lock = asyncio.Lock()
        self._committing: asyncio.Future[MetadataDelta] | None = None

    async def execute(self, plan: Callable[[], Decision[T]]) -> T:
        """Runs the plan when nobody else's is under way; KafkaErrors are the plan's and the commit's."""
        await self._lock.acquire()
        try:
            records, answer = plan()
        except BaseException:
            self._lock.release()
            raise
        if not records:
            self._lock.release()
            return answer
        self._committing = asyncio.ensure_future(self.log.commit(records))
        self._committing.add_done_callback(self._on_commit_done)
        await asyncio.shield(self._committing)
        return answer

    def _on_commit_done(self, committing: "asyncio.Future[MetadataDelta]") -> None:
        self._lock.release()
        if not committing.cancelled():
            committing.exception()  # was told to whoever waited, if anybody did

    async def apply_plan(self, plan: Callable[[], Sequence[MetadataRecord]]) -> bool:
        """The same for a plan that only wants something done; whether there was anything to do."""

        def decided() -> Decision[bool]:
            records = plan()
            return records, bool(records)

        return await self.execute(decided)

    def topic_rules(self) -> TopicRulesLookup:
        """Topics' election rules as they are now, for one plan."""
        by_config: dict[tuple[tuple[str, str], ...], TopicElectionRules] = {}

        def rules_of(topic: UUID) -> TopicElectionRules:
            overrides = self.image.topic_config(self.image.topic_names[topic])
            key = tuple(overrides.items())
            if (known := by_config.get(key)) is None:
                known = by_config[key] = self.rules_for_config(overrides)
            return known

        return rules_of

    def rules_for_config(self, overrides: Mapping[str, str]) -> TopicElectionRules:
        """The rules of a topic with these configs."""
        return TopicElectionRules(
            self._config.topic(TOPIC_MIN_INSYNC_REPLICAS, overrides),
            self._config.topic(TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE, overrides),
            acks_are_synced=self._config.topic(TOPIC_FLUSH_MESSAGES, overrides) == 1,
        )
