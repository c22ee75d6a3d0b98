"""Looks at the Topics of a Cluster, with stand-ins for the API server and for the brokers."""

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock
from uuid import UUID, uuid4

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import topic_reconciler
from ottla_operator.kafka import topics as brokers_topics
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.kube import topics as looks
from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.kinds import TOPIC
from ottla_operator.kube.known import Key, Known
from ottla_operator.kube.ledger import Ledger
from ottla_operator.kube.telling import Telling
from ottla_operator.kube.topics import Topics
from ottla_operator.plan.topics import CreateTopic, ObservedTopic, TopicChange
from ottla_operator.resources.model import Json
from ottla_operator.resources.topic import Topic
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")


def body(name: str, uid: str, *, kind: str = "Topic", **spec: Any) -> Json:
    return {
        "apiVersion": TOPIC.api,
        "kind": kind,
        "metadata": {"name": name, "namespace": KEY.namespace, "uid": uid, "generation": 1},
        "spec": {"clusterRef": {"name": KEY.name}, **spec},
        "status": {},
    }


@dataclass
class Looking:
    """`topics`: on the brokers, with their ids. `away`: no broker can be asked; `hidden`: topics of which they tell nothing; `refusing`: topics that they do
    not delete, and why. `said`: events."""

    api: FakeApi = field(default_factory=FakeApi)
    known: Known = field(default_factory=Known)
    topics: dict[str, UUID] = field(default_factory=dict)
    away: bool = False
    hidden: set[str] = field(default_factory=set)
    refusing: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.api.of("Cluster"):
            self.api.cluster({"replicas": 1, "storage": {"size": "1Gi"}})
        as_api, known = cast(Api, self.api), self.known
        self._looks = Topics(
            as_api,
            Telling(as_api, "test"),
            lambda key: self.known.topics.get(key, {}),
            self._cluster,
            lambda key: known.gone.setdefault(key, {}),
        )

    def another_operator(self) -> "Looking":
        """It has seen what there is now, and nothing of what went before."""
        known = Known()
        for it in self.api.of("Topic").values():
            known.see(it, gone=False)
        return Looking(self.api, known, self.topics, self.away)

    # --- people

    def make(self, name: str, *, again: bool = True, **spec: Any) -> None:
        """Another one of that name, or that with another spec."""
        before = self.api.objects.get((TOPIC.name, KEY.namespace, name))
        made = body(name, str(uuid4()) if again or before is None else before["metadata"]["uid"], **spec)
        if before is not None and not again:
            made["metadata"]["generation"] = before["metadata"]["generation"] + 1
            made["status"] = before["status"]
        self.known.see(copy.deepcopy(self.api.put(TOPIC, made)), gone=False)

    def delete(self, name: str, **spec: Any) -> None:
        """`spec`: what was changed just before."""
        it = self.api.objects.pop((TOPIC.name, KEY.namespace, name))
        it["spec"] |= spec
        self.known.see(it, gone=True)

    def status(self, name: str) -> Json:
        return self.api.objects[TOPIC.name, KEY.namespace, name]["status"]

    def uid(self, name: str) -> str:
        return str(self.api.objects[TOPIC.name, KEY.namespace, name]["metadata"]["uid"])

    def condition(self, name: str) -> str:
        return str(self.status(name)["conditions"][0]["status"])

    def reason(self, name: str) -> str:
        return str(self.status(name)["conditions"][0]["reason"])

    # --- the API server

    def refuse(self, write: str, status: int) -> list[str]:
        """What is refused, of the writes that begin so."""
        refused: list[str] = []

        def refuse(what: str) -> ApiError | None:
            if not what.startswith(write):
                return None
            refused.append(what)
            return ApiError(status, "not so")

        self.api.refuse = refuse
        return refused

    def refuse_nothing(self) -> None:
        self.api.refuse = lambda _: None

    # --- the operator

    async def look(self) -> float:
        patches: list[tuple[object, str, object]] = [
            (looks, "connect", self._connected),
            (looks, "ready_addresses", self._addresses),
            (topic_reconciler, "observe_topics", self._observe),
            (topic_reconciler, "apply_topic_change", self._apply),
            (brokers_topics, "delete_topic_by_id", self._delete),
            (self.api, "create", self._event),
        ]
        with ExitStack() as stack:
            for place, name, instead in patches:
                stack.enter_context(mock.patch.object(place, name, instead))
            return cast(float, await self._looks.look(KEY))

    async def ledger(self) -> Ledger:
        return await Ledger.read(cast(Api, self.api), KEY)

    async def noted(self) -> dict[str, bool]:
        """Resources whose topics go with them, and whether an operator saw them go."""
        return {it.resource: it.is_deleted for it in (await self.ledger()).by_uid.values()}

    async def _cluster(self, key: Key) -> Json | None:
        return self.api.of("Cluster").get(key.name)

    async def _event(self, event: Json) -> Json:
        self.said.append(f"{event['reason']}: {event['message']}")
        return event

    # --- brokers

    @asynccontextmanager
    async def _connected(self, *_: object) -> AsyncIterator[KafkaClient]:
        yield cast(KafkaClient, None)

    async def _addresses(self, *_: object) -> list[str]:
        return [] if self.away else ["one:9091"]

    async def _observe(self, _: KafkaClient, wanted: Sequence[Topic]) -> dict[str, ObservedTopic]:
        names = [it.topic_name for it in wanted]
        if refused := self.hidden & {*names}:
            raise KafkaError(ErrorCode.topic_authorization_failed, f"topic {min(refused)!r} is not told of")
        return {
            name: ObservedTopic(name, 1, 1, topic_id=str(self.topics[name]), brokers=1)
            for name in names
            if name in self.topics
        }

    async def _apply(self, _: KafkaClient, change: TopicChange) -> None:
        assert isinstance(change, CreateTopic)
        self.topics[change.name] = uuid4()

    async def _delete(self, _: KafkaClient, topic_id: UUID) -> bool:
        for name, its in list(self.topics.items()):
            if its == topic_id:
                if name in self.refusing:
                    raise KafkaError(ErrorCode.policy_violation, self.refusing[name])
                del self.topics[name]
                return True
        return False
