"""Brokers in memory, as reconciles of Topics see them."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import cast
from unittest import mock
from uuid import UUID, uuid4

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import topics as kafka_topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.topics import CreateTopic, ObservedTopic, TopicChange
from ottla_operator.reconcile import connection, topic_changes
from ottla_operator.reconcile.platform import BrokerAccess, Platform
from ottla_operator.resources.topic import Topic


@dataclass
class TopicBrokers:
    """`topics`: with their ids. `is_unreachable`: no broker is ready. `unauthorized`: topics that
    brokers do not describe. `undeletable`: topics that they do not delete, and why.
    `deletion_errors`: raised by the next deletions, the last first.
    """

    topics: dict[str, UUID] = field(default_factory=dict)
    is_unreachable: bool = False
    unauthorized: set[str] = field(default_factory=set)
    undeletable: dict[str, str] = field(default_factory=dict)
    deletion_errors: list[Exception] = field(default_factory=list)

    @contextmanager
    def serve(self, platform: Platform) -> Iterator[None]:
        """In this context, reconciles on the platform reach these brokers."""
        patches: list[tuple[object, str, object]] = [
            (connection, "connect", self._connect),
            (platform, "broker_access", self._access),
            (topic_changes, "observe_topics", self._observe),
            (topic_changes, "apply_topic_change", self._apply_change),
            (kafka_topics, "delete_topic_by_id", self._delete),
        ]
        with ExitStack() as stack:
            for target, name, fake in patches:
                stack.enter_context(mock.patch.object(target, name, fake))
            yield

    @asynccontextmanager
    async def _connect(self, *_: object) -> AsyncIterator[KafkaClient]:
        yield cast(KafkaClient, None)

    async def _access(self, *_: object) -> BrokerAccess:
        return BrokerAccess([] if self.is_unreachable else ["one:9091"])

    async def _observe(self, _: KafkaClient, desired: Sequence[Topic]) -> dict[str, ObservedTopic]:
        names = [it.topic_name for it in desired]
        if unauthorized := self.unauthorized & {*names}:
            raise KafkaError(ErrorCode.topic_authorization_failed, f"topic {min(unauthorized)!r} is not authorized")
        return {
            name: ObservedTopic(name, 1, 1, topic_id=str(self.topics[name]), brokers=1)
            for name in names
            if name in self.topics
        }

    async def _apply_change(self, _: KafkaClient, change: TopicChange) -> None:
        assert isinstance(change, CreateTopic)
        self.topics[change.name] = uuid4()

    async def _delete(self, _: KafkaClient, topic_id: UUID) -> bool:
        if self.deletion_errors:
            raise self.deletion_errors.pop()
        for name, its_id in list(self.topics.items()):
            if its_id == topic_id:
                if name in self.undeletable:
                    raise KafkaError(ErrorCode.policy_violation, self.undeletable[name])
                del self.topics[name]
                return True
        return False
