"""Brokers as pods, as an operator would make them: a StatefulSet with a volume for each, and an account without rights and without a token.

Each broker has two listeners: INTERNAL, by its name in the cluster's DNS, for brokers and for clients in pods; and CLIENTS, by the pod's
address, for a test beside the nodes.
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
from tests.kube.api import Api, Json
from tests.kube.images.build import reference
from tests.kube.machine import Machine
from tests.waiting import eventually

USER = 10001
READY_WITHIN_S = 90.0
LIMITED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
RESTRICTED = {"runAsNonRoot": True, "runAsUser": USER, "fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}}


@dataclass(frozen=True, slots=True)
class BrokerPods:
    """`name`: of the cluster, and of everything that belongs to it. `api`: the admin's."""

    api: Api
    namespace: str
    name: str = "demo"

    def make(self, replicas: int, settings: dict[str, str] | None = None, *, enforce: str = "restricted") -> None:
        """`enforce`: the level of Pod Security of its namespace."""
        core = f"/api/v1/namespaces/{self.namespace}"
        self.api.ask(
            "POST",
            "/api/v1/namespaces",
            {"metadata": {"name": self.namespace, "labels": {"pod-security.kubernetes.io/enforce": enforce}}},
        )
        metadata = {"metadata": {"name": self.name}}
        self.api.ask("POST", f"{core}/serviceaccounts", metadata)
        self.api.ask("POST", f"{core}/services", metadata | {"spec": self._service()})
        self.api.ask(
            "POST", f"{self._of('apps/v1')}/statefulsets", metadata | {"spec": self._set(replicas, settings or {})}
        )

    def scale(self, replicas: int) -> None:
        self.api.ask("PATCH", f"{self._of('apps/v1')}/statefulsets/{self.name}", {"spec": {"replicas": replicas}})

    def pod(self, broker: int) -> Json | None:
        return self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{broker}")

    def delete(self, broker: int, grace_s: int = 30) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{broker}?gracePeriodSeconds={grace_s}"
        self.api.ask("DELETE", path)

    def ready(self, broker: int) -> bool:
        conditions = ((self.pod(broker) or {}).get("status") or {}).get("conditions", [])
        return any(seen["type"] == "Ready" and seen["status"] == "True" for seen in conditions)

    def wait_ready(self, *brokers: int) -> None:
        for broker in brokers:
            eventually(lambda: self.ready(broker), within_s=READY_WITHIN_S, message=lambda: self.trouble(broker))  # noqa: B023

    def trouble(self, broker: int) -> str:
        """What is known of a pod that is not ready."""
        status = (self.pod(broker) or {}).get("status", {})
        events = self.api.ask("GET", f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return f"{self.name}-{broker} is ready: {status}\n{[event['message'] for event in events][-8:]}\n{self.log(broker)}"

    def log(self, broker: int) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{broker}/log"
        try:
            return self.api.ask_text("GET", path)[-4000:]
        except Exception as error:  # noqa: BLE001 - it is for a message about something worse
            return f"(no log: {error})"

    def bootstrap(self, *brokers: int) -> str:
        """For clients beside the nodes."""
        return ",".join(f"{(self.pod(broker) or {})['status']['podIP']}:9092" for broker in brokers)

    def whole(self, brokers: int, bootstrap: str) -> bool:
        """Whether so many brokers are known, and every replica of every partition is in sync."""
        try:
            told = rd.admin_client(bootstrap).list_topics(timeout=5)
        except ck.KafkaException:
            return False
        partitions = [partition for topic in told.topics.values() for partition in topic.partitions.values()]
        return len(told.brokers) == brokers and all(
            one.leader in one.isrs and sorted(one.isrs) == sorted(one.replicas) for one in partitions
        )

    def controller(self, bootstrap: str) -> int:
        """The broker that leads the metadata log, as a broker at `bootstrap` says; −1 if it knows none."""

        async def ask() -> int:
            async with connect(bootstrap, timeout_s=10) as client:
                return (await describe_cluster(client)).controller

        try:
            return asyncio.run(ask())
        except (Unreachable, KafkaError):
            return -1

    def kill(self, broker: int, machine: Machine) -> None:
        """As a crash does: nothing is flushed, nothing is closed, and its pod stays."""
        mark = f"--set node.id={broker} "
        [pid] = [pid for pid, line in machine.processes().items() if mark in line and self._host(0) in line]
        os.kill(pid, signal.SIGKILL)

    def _host(self, broker: int | str) -> str:
        return f"{self.name}-{broker}.{self.name}.{self.namespace}.svc.cluster.local"

    def _of(self, group: str) -> str:
        return f"/apis/{group}/namespaces/{self.namespace}"

    def _service(self) -> Json:
        """Brokers find each other before they are ready to serve clients."""
        return {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"cluster": self.name},
            "ports": [{"name": "internal", "port": 9091}, {"name": "clients", "port": 9092}],
        }

    def _set(self, replicas: int, settings: dict[str, str]) -> Json:
        labels = {"cluster": self.name}
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        volume = {"metadata": {"name": "data"}, "spec": claim}
        pod = {
            "serviceAccountName": self.name,
            "automountServiceAccountToken": False,
            "securityContext": RESTRICTED,
            "terminationGracePeriodSeconds": 30,
            "containers": [self._container(replicas, settings)],
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

    def _container(self, replicas: int, settings: dict[str, str]) -> Json:
        """Broker 0 may found the cluster."""
        wanted = {
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
            "image": reference("broker"),
            "imagePullPolicy": "Never",
            "command": [
                "sh",
                "-c",
                'exec python -m ottla_broker "$@" --set cluster.found=$([ "$BROKER" = 0 ] && echo true || echo false)',
            ],
            "args": ["sh", *(part for key, value in wanted.items() for part in ("--set", f"{key}={value}"))],
            "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()],
            "securityContext": LIMITED,
            "readinessProbe": _probe("/readyz"),
            "livenessProbe": _probe("/livez") | {"initialDelaySeconds": 30, "failureThreshold": 6},
            "volumeMounts": [{"name": "data", "mountPath": "/var/lib/ottla"}, {"name": "tmp", "mountPath": "/tmp"}],
        }


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 5}
