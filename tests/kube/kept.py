"""A Cluster managed by the installed operator: its pods, its clients' bootstrap, and the history of
its resources.
"""

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
    """`history` has every version of the namespace's resources."""

    installed: Installed
    resources: Resources
    moments: Moments
    name: str = DEMO

    def make(self, more: Json | None = None, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Create the Cluster in its existing namespace and return when it is Ready.

        `extra_spec` is merged into the spec. `while_starting` is called after the creation, for
        whatever the Cluster needs to become Ready.
        """
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
        """Create a Topic with three replicas per partition and return when it is Ready."""
        self.resources.make("Topic", name, {"clusterRef": {"name": self.name}, **TOPIC})
        self.resources.wait("Topic", name)

    def edit(self, spec: Json) -> int:
        """Merge a patch into the spec; returns the new generation."""
        return int(self.resources.edit("Cluster", self.name, spec)["metadata"]["generation"])

    @property
    def status(self) -> Json:
        found: Json = self.resources.get("Cluster", self.name)["status"]
        return found

    def is_current(self) -> bool:
        return kstatus(self.resources.get("Cluster", self.name)) == "Current"

    def bootstrap(self) -> str:
        """Bootstrap server for clients outside Kubernetes."""
        service = self.resources.of("v1", "services")[f"{self.name}-out-bootstrap"]
        return f"{self.installed.kube.nodes[0].address}:{service['spec']['ports'][0]['nodePort']}"

    def pods(self) -> dict[str, Json]:
        return {name: it for name, it in self.resources.of("v1", "pods").items() if name.startswith(f"{self.name}-")}

    def uids(self) -> dict[str, str]:
        return {name: it["metadata"]["uid"] for name, it in self.pods().items()}

    def kill(self, broker: int) -> None:
        """Send SIGKILL to the broker's process. Its pod remains, and the kubelet restarts the
        container.
        """
        os.kill(process_of(self.installed.kube, f"{self.name}-{broker}"), signal.SIGKILL)

    def holding(self, topic: str) -> set[int]:
        """Ids of the brokers with replicas of a topic."""
        told = rd.admin_client(self.bootstrap()).list_topics(topic, timeout=10).topics[topic]
        return {broker for it in told.partitions.values() for broker in it.replicas}

    def leading(self, topic: str, bootstrap: str = "") -> set[int]:
        """Ids of the brokers that lead partitions of a topic. Give `bootstrap` while the API server
        is unavailable, which otherwise provides it.
        """
        told = rd.admin_client(bootstrap or self.bootstrap()).list_topics(topic, timeout=10).topics[topic]
        return {it.leader for it in told.partitions.values()}

    @contextmanager
    def under_load(self, topic: str, settings: Mapping[str, str] | None = None) -> Iterator[Load]:
        """Create a topic, and run a producer and a consumer group on it from outside Kubernetes
        during the block; see `client_load.run_clients`.
        """
        self.wait()
        self.topic(topic)
        bootstrap = self.bootstrap()
        with loaded.under_load(topic, PARTITIONS, lambda: bootstrap, self.is_current, settings) as load:
            yield load

    def one_after_the_other(self, before: dict[str, str], within_s: float = READY_WITHIN_S) -> list[str]:
        """Wait until all pods of `before` (name → uid) are replaced and ready; returns their names
        in the order of replacement.

        Raises AssertionError when two of them are missing or not ready at the same time.
        """
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
