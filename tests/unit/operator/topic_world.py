"""Reconciles of the Topics of a Cluster, with an API server and brokers in memory."""

import copy
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock
from uuid import uuid4

from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.kinds import TOPIC
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.topic_deletion import DeletionRecord
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.topic_brokers import TopicBrokers

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
    """`events`: as `reason: message`."""

    api: FakeApi = field(default_factory=FakeApi)
    cache: WatchCache = field(default_factory=WatchCache)
    brokers: TopicBrokers = field(default_factory=TopicBrokers)
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
        return TopicWorld(self.api, cache, self.brokers)

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
        """Rejects the writes that begin with `write` from now on. Returns a list that gets them."""
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
        with self.brokers.serve(self._platform), mock.patch.object(self.api, "create", self._record_event):
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
