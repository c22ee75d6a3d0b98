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
from tests.kube import client_load
from tests.kube.api_client import Json
from tests.kube.cluster import Kubernetes
from tests.kube.installed_operator import InstalledOperator, describe_pods, find_process, is_pod_ready
from tests.kube.namespace_client import NamespaceClient
from tests.kube.resource_history import ResourceHistory
from tests.waiting import eventually

CLUSTER_NAME = "demo"
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


def external_bootstrap(kube: Kubernetes, resources: NamespaceClient, cluster: str) -> str:
    """Bootstrap server of a Cluster's NodePort listener `out`, for clients outside Kubernetes."""
    port = resources.list_objects("v1", "services")[f"{cluster}-out-bootstrap"]["spec"]["ports"][0]["nodePort"]
    return f"{kube.nodes[0].address}:{port}"


@dataclass
class ManagedCluster:
    """`history` has every version of the namespace's Clusters, Topics, Pipelines and Mirrors."""

    operator: InstalledOperator
    resources: NamespaceClient
    history: ResourceHistory
    name: str = CLUSTER_NAME

    def create(self, extra_spec: Json | None = None, while_starting: Callable[[], None] = lambda: None) -> None:
        """Creates the Cluster in its existing namespace and returns when it is Ready.

        `extra_spec` is merged into the spec. `while_starting` is called after the creation, and
        does what the Cluster needs to become Ready.
        """
        began = time.monotonic()
        self.resources.create("Cluster", self.name, {**SPEC, **(extra_spec or {})})
        while_starting()
        self.wait_for_status()
        print(f"apply to Ready: {time.monotonic() - began:.1f} s")

    def wait_for_status(self, status: str = "Current") -> Json:
        """Waits until kstatus evaluates the Cluster to `status`, and returns the Cluster."""
        try:
            return self.resources.wait_for_status("Cluster", self.name, status, within_s=READY_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    def create_topic(self, name: str) -> None:
        """Creates a Topic with three replicas per partition and returns when it is Ready."""
        self.resources.create("Topic", name, {"clusterRef": {"name": self.name}, **TOPIC})
        self.resources.wait_for_status("Topic", name)

    def patch_spec(self, spec: Json) -> int:
        """Merges a patch into the spec; returns the new generation."""
        return int(self.resources.patch_spec("Cluster", self.name, spec)["metadata"]["generation"])

    @property
    def status(self) -> Json:
        status: Json = self.resources.get("Cluster", self.name)["status"]
        return status

    def is_current(self) -> bool:
        """True if kstatus evaluates the Cluster to Current."""
        return kstatus(self.resources.get("Cluster", self.name)) == "Current"

    def bootstrap(self) -> str:
        """Bootstrap server for clients outside Kubernetes."""
        return external_bootstrap(self.operator.kube, self.resources, self.name)

    def pods(self) -> dict[str, Json]:
        """The brokers' pods by name."""
        return {
            name: it
            for name, it in self.resources.list_objects("v1", "pods").items()
            if name.startswith(f"{self.name}-")
        }

    def uids(self) -> dict[str, str]:
        """The uids of the brokers' pods by name."""
        return {name: it["metadata"]["uid"] for name, it in self.pods().items()}

    def kill_broker(self, broker: int) -> None:
        """Sends SIGKILL to the broker's process. Its pod remains, and the kubelet restarts the
        container.
        """
        os.kill(find_process(self.operator.kube, f"{self.name}-{broker}"), signal.SIGKILL)

    def replica_brokers(self, topic: str) -> set[int]:
        """Ids of the brokers with replicas of a topic."""
        metadata = rd.admin_client(self.bootstrap()).list_topics(topic, timeout=10).topics[topic]
        return {broker for it in metadata.partitions.values() for broker in it.replicas}

    def leader_brokers(self, topic: str) -> set[int]:
        """Ids of the brokers that lead partitions of a topic."""
        metadata = rd.admin_client(self.bootstrap()).list_topics(topic, timeout=10).topics[topic]
        return {it.leader for it in metadata.partitions.values()}

    @contextmanager
    def run_clients(self, topic: str, settings: Mapping[str, str] | None = None) -> Iterator[Load]:
        """Creates a topic, and runs a producer and a consumer group on it from outside Kubernetes
        during the block; see `client_load.run_clients`.
        """
        self.wait_for_status()
        self.create_topic(topic)
        bootstrap = self.bootstrap()
        with client_load.run_clients(topic, PARTITIONS, lambda: bootstrap, self.is_current, settings) as load:
            yield load

    def wait_for_rolling_restart(self, before: dict[str, str]) -> list[str]:
        """Waits until all pods of `before` (name → uid) are replaced and ready; returns their names
        in the order of replacement.

        Raises AssertionError when two of them are missing or not ready at the same time.
        """
        order: list[str] = []

        def are_all_replaced() -> bool:
            pods = self.pods()
            order.extend(
                name for name, it in pods.items() if it["metadata"]["uid"] != before.get(name) and name not in order
            )
            unready = [name for name in before if name not in pods or not is_pod_ready(pods[name])]
            assert len(unready) <= 1, f"{unready} are missing or not ready at the same time"
            return len(order) == len(before) and not unready

        eventually(are_all_replaced, within_s=READY_WITHIN_S, message=self.describe)
        return order

    def describe(self) -> str:
        """States and logs of the pods of the operator and the brokers, for assertion messages."""
        return f"{self.operator.describe_pods()}\n{describe_pods(self.operator.kube, NAMESPACE, self.name)}"
