"""A Cluster that the installed operator keeps, as tests see it: its pods, where clients begin, and how it was told at every moment."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ottla_operator.plan.conditions import kstatus
from tests.clients import librdkafka as rd
from tests.e2e.rounds.load import Load
from tests.kube import under_load as loaded
from tests.kube.api import Json
from tests.kube.installed import Installed, process_of, ready, told
from tests.kube.moments import Moments
from tests.kube.operators import Resources
from tests.waiting import eventually

DEMO = "demo"
NAMESPACE = "events"
PARTITIONS = 6
SPEC: Json = {
    "replicas": 3,
    "storage": {"size": "1Gi"},
    "resources": {"requests": {"cpu": "100m"}},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
    "config": {"offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 0},
}
TOPIC = {"partitions": PARTITIONS, "replicas": 3, "config": {"min.insync.replicas": 2}}
READY_WITHIN_S = 180.0


@dataclass
class Kept:
    """`moments`: of its namespace, from its beginning on."""

    installed: Installed
    resources: Resources
    moments: Moments
    name: str = DEMO

    def make(self, more: Json | None = None, meanwhile: Callable[[], None] = lambda: None) -> None:
        """In a namespace that takes only pods of the restricted profile. Returns when it is Ready. `more`: fields of its spec beside; `meanwhile`: what
        others do for it."""
        began = time.monotonic()
        self.resources.make("Cluster", self.name, {**SPEC, **(more or {})})
        meanwhile()
        self.wait()
        print(f"apply to Ready: {time.monotonic() - began:.1f} s")

    def wait(self, wanted: str = "Current") -> Json:
        try:
            return self.resources.wait("Cluster", self.name, wanted, within_s=READY_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from error

    def topic(self, name: str) -> None:
        """With three replicas of each partition. Returns when it is there."""
        self.resources.make("Topic", name, {"clusterRef": {"name": self.name}, **TOPIC})
        self.resources.wait("Topic", name)

    def edit(self, spec: Json) -> int:
        """The generation that it has then."""
        return int(self.resources.edit("Cluster", self.name, spec)["metadata"]["generation"])

    @property
    def status(self) -> Json:
        found: Json = self.resources.get("Cluster", self.name)["status"]
        return found

    def is_current(self) -> bool:
        return kstatus(self.resources.get("Cluster", self.name)) == "Current"

    def bootstrap(self) -> str:
        """For clients beside the nodes."""
        service = self.resources.of("v1", "services")[f"{self.name}-out-bootstrap"]
        return f"{self.installed.kube.nodes[0].address}:{service['spec']['ports'][0]['nodePort']}"

    def pods(self) -> dict[str, Json]:
        return {name: it for name, it in self.resources.of("v1", "pods").items() if name.startswith(f"{self.name}-")}

    def uids(self) -> dict[str, str]:
        return {name: it["metadata"]["uid"] for name, it in self.pods().items()}

    def kill(self, broker: int) -> None:
        """As a crash does: nothing is flushed, nothing is closed, and its pod stays."""
        os.kill(process_of(self.installed.kube, f"{self.name}-{broker}"), signal.SIGKILL)

    def holding(self, topic: str) -> set[int]:
        """Brokers that have replicas of it."""
        told = rd.admin_client(self.bootstrap()).list_topics(topic, timeout=10).topics[topic]
        return {broker for it in told.partitions.values() for broker in it.replicas}

    def leading(self, topic: str, bootstrap: str = "") -> set[int]:
        """`bootstrap`: where to ask, when the API server cannot tell."""
        told = rd.admin_client(bootstrap or self.bootstrap()).list_topics(topic, timeout=10).topics[topic]
        return {it.leader for it in told.partitions.values()}

    @contextmanager
    def under_load(self, topic: str, settings: Mapping[str, str] | None = None) -> Iterator[Load]:
        """An idempotent producer and a group on a new topic, from outside of the cluster, until the Cluster is Ready after the block. `settings`: of these
        clients."""
        self.wait()
        self.topic(topic)
        bootstrap = self.bootstrap()
        with loaded.under_load(topic, PARTITIONS, lambda: bootstrap, self.is_current, settings) as load:
            yield load

    def one_after_the_other(self, before: dict[str, str], within_s: float = READY_WITHIN_S) -> list[str]:
        """Waits until all pods are others than before, and ready; which came when. Never more than one may be away."""
        order: list[str] = []

        def rolled() -> bool:
            seen = self.pods()
            order.extend(
                name for name, it in seen.items() if it["metadata"]["uid"] != before.get(name) and name not in order
            )
            away = [name for name in before if name not in seen or not ready(seen[name])]
            assert len(away) <= 1, f"{away} are away at once"
            return len(order) == len(before) and not away

        eventually(rolled, within_s=within_s, message=self.said)
        return order

    def said(self) -> str:
        return f"{self.installed.said()}\n{told(self.installed.kube, NAMESPACE, self.name)}"
