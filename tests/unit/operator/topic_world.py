"""Reconciles of the Topics of a Cluster, with an API server and brokers in memory."""

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock
from uuid import UUID, uuid4

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import topics as kafka_topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.kinds import TOPIC
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.plan.objects.pods import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.plan.topics import CreateTopic, ObservedTopic, TopicChange
from ottla_operator.reconcile import connection, topic_changes
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.platform import BrokerAccess
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")


def resource(name: str, uid: str, *, kind: str = "Topic", **spec: Any) -> Json:
    return {
        "apiVersion": TOPIC.api,
        "kind": kind,
        "metadata": {"name": name, "namespace": KEY.namespace, "uid": uid, "generation": 1},
        "spec": {"clusterRef": {"name": KEY.name}, **spec},
        "status": {},
    }


@dataclass
class TopicWorld:
    """`topics`: on the brokers, with their ids. `is_unreachable`: no broker is ready.
    `unauthorized`: topics that brokers do not describe. `undeletable`: topics that they do not
    delete, and why. `events`: as `reason: message`.
    """

    api: FakeApi = field(default_factory=FakeApi)
    cache: WatchCache = field(default_factory=WatchCache)
    topics: dict[str, UUID] = field(default_factory=dict)
    is_unreachable: bool = False
    unauthorized: set[str] = field(default_factory=set)
    undeletable: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.api.of("Cluster"):
            self.api.put_cluster({"replicas": 1, "storage": {"size": "1Gi"}})
        images = BrokerImages("broker", "1"), PipelineImage("spark:1")
        self._platform = KubePlatform(cast(ApiClient, self.api), self.cache, "test", *images)
        self._controller = Controller(self._platform, self.cache)

    def start_another_operator(self) -> "TopicWorld":
        """Another operator, whose watches have shown what exists now, and no deletion."""
        cache = WatchCache()
        for it in self.api.of("Topic").values():
            cache.update(it, is_deleted=False)
        return TopicWorld(self.api, cache, self.topics, self.is_unreachable)

    # What people change.

    def create(self, name: str, **spec: Any) -> None:
        self._apply(resource(name, str(uuid4()), **spec))

    def edit(self, name: str, **spec: Any) -> None:
        before = self.api.objects[TOPIC.name, KEY.namespace, name]
        after = resource(name, before["metadata"]["uid"], **spec)
        after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        self._apply({**after, "status": before["status"]})

    def _apply(self, topic: Json) -> None:
        self.cache.update(copy.deepcopy(self.api.put(TOPIC, topic)), is_deleted=False)

    def delete(self, name: str, **spec: Any) -> None:
        """Deletes the resource after a change of these fields of its spec."""
        deleted = self.api.objects.pop((TOPIC.name, KEY.namespace, name))
        deleted["spec"] |= spec
        self.cache.update(deleted, is_deleted=True)

    def status(self, name: str) -> Json:
        return self.api.objects[TOPIC.name, KEY.namespace, name]["status"]

    def uid(self, name: str) -> str:
        return str(self.api.objects[TOPIC.name, KEY.namespace, name]["metadata"]["uid"])

    def is_ready(self, name: str) -> bool:
        return bool(self.status(name)["conditions"][0]["status"] == "True")

    def reason(self, name: str) -> str:
        return str(self.status(name)["conditions"][0]["reason"])

    # What the API server answers.

    def reject(self, write: str, status: int) -> list[str]:
        """Returns the writes that are rejected from now on: those that begin with `write`."""
        rejected: list[str] = []

        def reject(what: str) -> ApiError | None:
            if not what.startswith(write):
                return None
            rejected.append(what)
            return ApiError(status, "rejected")

        self.api.reject = reject
        return rejected

    def accept_all(self) -> None:
        self.api.reject = lambda _: None

    # What the operator does.

    async def reconcile(self) -> float:
        """Reconciles once. Returns the requeue delay."""
        patches: list[tuple[object, str, object]] = [
            (connection, "connect", self._connect),
            (self._platform, "broker_access", self._access),
            (topic_changes, "observe_topics", self._observe),
            (topic_changes, "apply_topic_change", self._apply_change),
            (kafka_topics, "delete_topic_by_id", self._delete),
            (self.api, "create", self._record_event),
        ]
        with ExitStack() as stack:
            for target, name, fake in patches:
                stack.enter_context(mock.patch.object(target, name, fake))
            return cast(float, await self._controller.topics.reconcile(KEY))

    async def deletion_records(self) -> dict[str, DeletionRecord]:
        return await self._platform.read_deletion_records(KEY)

    async def recorded(self) -> dict[str, bool]:
        """Topic resources with deletion records, and whether an operator has watched their
        deletion.
        """
        return {it.resource: it.is_deleted for it in (await self.deletion_records()).values()}

    async def _record_event(self, event: Json) -> Json:
        self.events.append(f"{event['reason']}: {event['message']}")
        return event

    # What brokers answer.

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
        for name, its_id in list(self.topics.items()):
            if its_id == topic_id:
                if name in self.undeletable:
                    raise KafkaError(ErrorCode.policy_violation, self.undeletable[name])
                del self.topics[name]
                return True
        return False
