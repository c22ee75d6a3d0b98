"""Brokers in pods without an operator: a StatefulSet with a volume for each broker, and a service
account without rights.

Each broker has two listeners: INTERNAL, with the broker's DNS name in the cluster, for brokers and
for clients in pods; CLIENTS, with the pod's address, for clients on the host network.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka.client import Unreachable, connect
from ottla_operator.kafka.cluster import describe_cluster
from tests.clients import librdkafka as rd
from tests.kube.api_client import ApiClient, Json
from tests.kube.images.build import image_reference
from tests.kube.machine import Machine
from tests.waiting import eventually

USER_ID = 10001
READY_WITHIN_S = 90.0
CONTAINER_SECURITY_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY_CONTEXT = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "fsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True)
class BrokerPods:
    """`name` is the name of the cluster and of all its objects; `api` a client with all
    permissions.
    """

    api: ApiClient
    namespace: str
    name: str = "demo"

    def create(self, replicas: int, settings: dict[str, str]) -> None:
        """Creates the objects of a cluster in a new namespace that enforces the restricted Pod
        Security level. `settings` are added to those of `_container_spec`.
        """
        core = f"/api/v1/namespaces/{self.namespace}"
        self.api.request(
            "POST",
            "/api/v1/namespaces",
            {"metadata": {"name": self.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
        )
        metadata = {"metadata": {"name": self.name}}
        self.api.request("POST", f"{core}/serviceaccounts", metadata)
        self.api.request("POST", f"{core}/services", metadata | {"spec": self._service_spec()})
        self.api.request(
            "POST",
            f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets",
            metadata | {"spec": self._stateful_set_spec(replicas, settings)},
        )

    def get_pod(self, broker: int) -> Json | None:
        """The pod of a broker, or None if it does not exist."""
        return self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{broker}")

    def delete_pod(self, broker: int, grace_s: int = 30) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{broker}?gracePeriodSeconds={grace_s}"
        self.api.request("DELETE", path)

    def is_ready(self, broker: int) -> bool:
        conditions = ((self.get_pod(broker) or {}).get("status") or {}).get("conditions", [])
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def wait_until_ready(self, *brokers: int) -> None:
        """Waits until the pods of these brokers are Ready."""
        eventually(
            lambda: all(self.is_ready(broker) for broker in brokers),
            within_s=READY_WITHIN_S,
            message=lambda: "\n".join(self.describe_pod(broker) for broker in brokers),
        )

    def describe_pod(self, broker: int) -> str:
        """The broker pod's status, newest events of the namespace and the pod's log, for assertion
        messages.
        """
        status = (self.get_pod(broker) or {}).get("status", {})
        events = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return f"{self.name}-{broker}: {status}\n{[event['message'] for event in events][-8:]}\n{self.read_log(broker)}"

    def read_log(self, broker: int) -> str:
        """The last 4,000 characters of a broker's log, or why it cannot be read."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{broker}/log"
        try:
            return self.api.request_text("GET", path)[-4000:]
        except Exception as error:  # noqa: BLE001 - the assertion message must not hide the original failure
            return f"(no log: {error})"

    def bootstrap(self, *brokers: int) -> str:
        """Bootstrap servers of these brokers for clients on the host network."""
        return ",".join(f"{(self.get_pod(broker) or {})['status']['podIP']}:9092" for broker in brokers)

    def is_fully_replicated(self, brokers: int, bootstrap: str) -> bool:
        """True if the cluster has this number of brokers and all replicas of all partitions are in
        sync.
        """
        try:
            metadata = rd.admin_client(bootstrap).list_topics(timeout=5)
        except ck.KafkaException:
            return False
        partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
        return len(metadata.brokers) == brokers and all(
            it.leader in it.isrs and sorted(it.isrs) == sorted(it.replicas) for it in partitions
        )

    def kill_process(self, broker: int, machine: Machine) -> None:
        """Sends SIGKILL to the broker's process. Its pod remains, and the kubelet restarts the
        container.
        """
        node_id = f"--set node.id={broker} "
        [pid] = [pid for pid, line in machine.list_processes().items() if node_id in line and self._host(0) in line]
        os.kill(pid, signal.SIGKILL)

    def _host(self, broker: int | str) -> str:
        return f"{self.name}-{broker}.{self.name}.{self.namespace}.svc.cluster.local"

    def _service_spec(self) -> Json:
        """Spec of a headless Service that publishes brokers before they are ready: they connect to
        each other first.
        """
        return {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"cluster": self.name},
            "ports": [{"name": "internal", "port": 9091}, {"name": "clients", "port": 9092}],
        }

    def _stateful_set_spec(self, replicas: int, settings: dict[str, str]) -> Json:
        labels = {"cluster": self.name}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        volume = {"metadata": {"name": "data"}, "spec": claim}
        pod = {
            "serviceAccountName": self.name,
            "automountServiceAccountToken": False,
            "securityContext": POD_SECURITY_CONTEXT,
            "terminationGracePeriodSeconds": 30,
            "containers": [self._container_spec(replicas, settings)],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        }
        return {
            "replicas": replicas,
            "serviceName": self.name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "volumeClaimTemplates": [volume],
        }

    def _container_spec(self, replicas: int, settings: dict[str, str]) -> Json:
        """Spec of a broker's container. Only broker 0 may found the cluster."""
        founds = '$([ "$BROKER" = 0 ] && echo true || echo false)'
        config = {
            "node.id": "$(BROKER)",
            "log.dirs": "/var/lib/ottla/data",
            "controller.quorum.bootstrap.servers": ",".join(f"{self._host(it)}:9091" for it in range(replicas)),
            "listeners": "INTERNAL://:9091,CLIENTS://:9092",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "advertised.listeners": f"INTERNAL://{self._host('$(BROKER)')}:9091,CLIENTS://$(ADDRESS):9092",
            "http.listener": ":8080",
        } | settings
        fields = {
            "BROKER": "metadata.labels['apps.kubernetes.io/pod-index']",
            "ADDRESS": "status.podIP",
        }
        return {
            "name": "broker",
            "image": image_reference("broker"),
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", f'exec python -m ottla_broker "$@" --set cluster.found={founds}'],
            "args": ["sh", *(part for key, value in config.items() for part in ("--set", f"{key}={value}"))],
            "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
            "securityContext": CONTAINER_SECURITY_CONTEXT,
            "readinessProbe": _http_probe("/readyz"),
            "livenessProbe": _http_probe("/livez") | {"initialDelaySeconds": 30, "failureThreshold": 6},
            "volumeMounts": [{"name": "data", "mountPath": "/var/lib/ottla"}, {"name": "tmp", "mountPath": "/tmp"}],
        }


def _http_probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5}


def find_controller(bootstrap: str) -> int:
    """The id of the controller, as a broker at `bootstrap` reports it; −1 if there is none or no
    broker responds.
    """

    async def request() -> int:
        async with connect(bootstrap, timeout_s=10) as client:
            return (await describe_cluster(client)).controller

    try:
        return asyncio.run(request())
    except (Unreachable, KafkaError):
        return -1
