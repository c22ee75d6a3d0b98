"""Serialized changes of the cluster's metadata: plan from the image, commit, and only then run the
next plan.

A lock makes planning and committing one step, so that no plan sees an image that another plan is
about to change. It is held until the outcome of the commit is known, even if the caller is
cancelled, because appended records may still be committed. Plans are pure and fast, and each is one
commit, so a change of many partitions is one plan.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from ottla_broker.config import (
    TOPIC_FLUSH_MESSAGES,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    Config,
)
from ottla_broker.metadata.election import TopicElectionRules, TopicRulesLookup
from ottla_broker.metadata.image import MetadataDelta, MetadataImage
from ottla_broker.metadata.quorum import CommitLog
from ottla_broker.metadata.records import MetadataRecord

T = TypeVar("T")

Decision = tuple[Sequence[MetadataRecord], T]
"""Records to commit, maybe none, and the result to return once they are committed."""


class MetadataWriter:
    """Plans read `image`. `config` has the election rules of topics without configs of their
    own.
    """

    def __init__(self, image: MetadataImage, quorum: CommitLog, config: Config) -> None:
        self.image = image
        self.quorum = quorum
        self._config = config
        self._lock = asyncio.Lock()

    async def execute(self, plan: Callable[[], Decision[T]]) -> T:
        """Runs the plan when no other plan is being committed, and commits its records. Returns its
        result. Raises the KafkaError of the plan or the commit.
        """
        await self._lock.acquire()
        try:
            records, result = plan()
        except BaseException:
            self._lock.release()
            raise
        if not records:
            self._lock.release()
            return result
        commit = asyncio.ensure_future(self.quorum.commit(records))
        commit.add_done_callback(self._on_commit_done)
        await asyncio.shield(commit)
        return result

    def _on_commit_done(self, commit: "asyncio.Future[MetadataDelta]") -> None:
        self._lock.release()
        if not commit.cancelled():
            commit.exception()  # retrieved, because the caller may have been cancelled

    async def apply_plan(self, plan: Callable[[], Sequence[MetadataRecord]], *, validate_only: bool = False) -> bool:
        """Commits the plan's records, unless it is only to be validated; False if there were
        none.
        """

        def decide() -> Decision[bool]:
            records = plan()
            return [] if validate_only else records, bool(records)

        return await self.execute(decide)

    def topic_rules(self) -> TopicRulesLookup:
        """The current election rules of all topics, for one plan."""
        by_config: dict[tuple[tuple[str, str], ...], TopicElectionRules] = {}

        def rules_of(topic: UUID) -> TopicElectionRules:
            overrides = self.image.topic_config(self.image.topic_names[topic])
            key = tuple(overrides.items())
            if (rules := by_config.get(key)) is None:
                rules = by_config[key] = self.rules_for_config(overrides)
            return rules

        return rules_of

    def rules_for_config(self, overrides: Mapping[str, str]) -> TopicElectionRules:
        """The rules of a topic with these configs."""
        return TopicElectionRules(
            self._config.topic_value(TOPIC_MIN_INSYNC_REPLICAS, overrides),
            self._config.topic_value(TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE, overrides),
            acks_are_synced=self._config.topic_value(TOPIC_FLUSH_MESSAGES, overrides) == 1,
        )
