"""A kubelet for the fake API server of the unit tests. It runs pods of StatefulSets as broker
processes, each on its own loopback address, so that the operator reconciles real brokers without
Kubernetes.
"""

import asyncio
import base64
import copy
import os
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp

from ottla_broker.wire.client_security import ClientSecurity
from ottla_operator.kafka.client import KafkaClient, connect
from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import CLAIM, POD, SECRET, TOPIC, USER
from ottla_operator.kube.platform import KubePlatform
from ottla_operator.kube.status_writer import EventRecorder, now_text
from ottla_operator.plan.inter_broker_login import InterBrokerLogin, operator_security
from ottla_operator.plan.objects.broker_pod import BrokerImages
from ottla_operator.plan.objects.config import (
    CERTIFICATES_PATH,
    COMMON_FILE,
    LOGIN_PATH,
    broker_file,
    parse_properties,
)
from ottla_operator.plan.password_rotation import LoginSecret
from ottla_operator.plan.pipeline.pods import PipelineImage
from ottla_operator.plan.source_credentials import secret_values
from ottla_operator.reconcile.controller import Controller
from ottla_operator.reconcile.watch_cache import Key, WatchCache
from ottla_operator.resources.model import Json
from tests.unit.operator.api_server import FakeApi

KEY = Key("events", "demo")
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 0.5
"""Bounds of the pause between two reconciliations. It is as long as the last one took, so that
brokers have the processor too.
"""


@dataclass
class Container:
    """The process of a broker, and the file of its output."""

    process: "asyncio.subprocess.Process"
    log: Path

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None


@dataclass
class ProcessKubelet:
    """The API server, the operator and the pods of one Cluster `demo` in namespace `events`.
    `created_pods`: names in the order of creation. `events`: `reason: message` of each recorded
    event.
    """

    folder: Path
    api: FakeApi = field(default_factory=FakeApi)
    created_pods: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    _containers: dict[str, Container] = field(default_factory=dict)
    _subnet: str = field(default_factory=lambda: f"127.{random.randint(1, 250)}.{random.randint(0, 250)}")

    def __post_init__(self) -> None:
        api_client, cache = cast(ApiClient, self.api), WatchCache()
        platform = KubePlatform(api_client, cache, "test", BrokerImages("broker", "1"), PipelineImage("spark:1"))
        platform.events = RecordingEventRecorder(api_client, "test", messages=self.events)
        platform.pods.events = platform.events
        self.controller = Controller(platform, cache)

    # --- what users do

    def put_topic(self, name: str, **spec: Any) -> Json:
        metadata = {"name": name, "namespace": "events", "generation": 1}
        spec = {"clusterRef": {"name": "demo"}, **spec}
        return self.api.put(
            TOPIC, {"apiVersion": TOPIC.api, "kind": "Topic", "metadata": metadata, "spec": spec, "status": {}}
        )

    def put_user(self, name: str, **spec: Any) -> Json:
        metadata = {"name": name, "namespace": "events", "generation": 1}
        spec = {"clusterRef": {"name": "demo"}, "authentication": {"type": "SCRAM-SHA-512"}, **spec}
        return self.api.put(
            USER, {"apiVersion": USER.api, "kind": "User", "metadata": metadata, "spec": spec, "status": {}}
        )

    def put_secret(self, name: str, **values: str) -> Json:
        data = {key: base64.b64encode(it.encode()).decode() for key, it in values.items()}
        return self.api.put(SECRET, {"metadata": {"name": name, "namespace": "events"}, "data": data})

    def secret(self, name: str) -> dict[str, str]:
        """Values of a Secret; empty if there is none."""
        found = self.api.of("Secret").get(name)
        return secret_values(found) if found else {}

    def edit_spec(self, kind: str, name: str, **spec: Any) -> None:
        resource = self.api.objects[kind, "events", name]
        resource["spec"] = {**resource["spec"], **spec}
        resource["metadata"]["generation"] += 1

    def status(self, kind: str, name: str) -> Json:
        return self.api.objects[kind, "events", name]["status"]

    def condition(self, kind: str, name: str, type_: str = "Ready") -> Json:
        return next((it for it in self.status(kind, name).get("conditions", []) if it["type"] == type_), {})

    async def wait_until(self, condition: Callable[[], object], within_s: float = 40.0) -> None:
        """Runs the kubelet and reconciles, as the operator's loops do, until `condition` is true.
        Raises AssertionError with all statuses, events and logs after `within_s`.
        """
        try:
            async with asyncio.timeout(within_s):
                while True:
                    began = time.monotonic()
                    await self.sync_pods()
                    await self.reconcile()
                    if condition():
                        return
                    await asyncio.sleep(max(SHORTEST_PAUSE_S, min(time.monotonic() - began, LONGEST_PAUSE_S)))
        except TimeoutError as error:
            kinds = ("Cluster", "Topic", "User")
            statuses = {f"{kind} {name}": self.status(kind, name) for kind in kinds for name in self.api.of(kind)}
            logs = {name: it.log.read_text()[-800:] for name, it in self._containers.items()}
            raise AssertionError(f"{statuses}\n{self.events}\n{logs}") from error

    def is_ready(self, kind: str = "Cluster", name: str = "demo") -> bool:
        """True if the resource is ready in its current generation."""
        ready, resource = self.condition(kind, name), self.api.objects[kind, "events", name]
        is_current = ready.get("observedGeneration") == resource["metadata"]["generation"]
        return bool(is_current and ready.get("status") == "True")

    async def wait_until_ready(self, kind: str = "Cluster", name: str = "demo", *, within_s: float = 40.0) -> None:
        await self.wait_until(lambda: self.is_ready(kind, name), within_s)

    async def reconcile(self) -> None:
        for it in [it for kind in ("Cluster", "Topic", "User") for it in self.api.of(kind).values()]:
            self.controller.update(it)
        await self.controller.clusters.reconcile(KEY)
        await self.controller.topics.reconcile(KEY)
        await self.controller.users.reconcile(KEY)

    # --- what Kubernetes does

    async def sync_pods(self) -> None:
        for it in self.api.of("StatefulSet").values():
            spec = it["spec"]
            start, count = spec["ordinals"]["start"], spec["replicas"]
            wanted = [f"{it['metadata']['name']}-{number}" for number in range(start, start + count)]
            for name in wanted:
                is_missing = ("Pod", "events", name) not in self.api.objects and name not in self._containers
                if is_missing and self._has_volumes(spec["template"]):
                    await self._create_pod(name, spec["template"])
            for name in [name for name in self.api.of("Pod") if name not in wanted]:
                del self.api.objects["Pod", "events", name]
        for name, container in list(self._containers.items()):
            pod = self.api.objects.get(("Pod", "events", name))
            if pod is None:
                await self._stop_broker(name)
            else:
                self._mount_secrets(self.folder / name, pod["spec"])
                await self._update_pod_status(pod, container)

    async def stop_container(self, pod: str) -> None:
        """Stops the broker of a pod and keeps the pod."""
        container = self._containers[pod]
        container.process.terminate()
        await container.process.wait()

    async def start_container(self, pod: str) -> None:
        """Starts the broker of a pod again, with the Secrets' current values."""
        found = self.api.objects["Pod", "events", pod]
        self._containers[pod] = await self._start_broker(pod, found, found["status"]["podIP"])

    async def stop(self) -> None:
        for name in list(self._containers):
            await self._stop_broker(name)

    def _has_volumes(self, template: Json) -> bool:
        """True if all Secrets that the pod mounts exist."""
        mounted = [it["secret"]["secretName"] for it in template["spec"]["volumes"] if "secret" in it]
        return all(it in self.api.of("Secret") for it in mounted)

    async def _create_pod(self, name: str, template: Json) -> None:
        template = copy.deepcopy(template)
        number = name.rpartition("-")[2]
        labels = {**template["metadata"]["labels"], "apps.kubernetes.io/pod-index": number}
        metadata = {**template["metadata"], "labels": labels, "name": name, "namespace": "events"}
        status: Json = {"podIP": f"{self._subnet}.{number}", "conditions": _ready_condition(False)}
        self.api.put(
            POD, {"metadata": {**metadata, "creationTimestamp": now_text()}, "spec": template["spec"], "status": status}
        )
        self.created_pods.append(name)
        if (CLAIM.name, "events", f"data-{name}") not in self.api.objects:
            self.api.put(CLAIM, {"metadata": {"name": f"data-{name}", "namespace": "events"}, "spec": {}})
        self._containers[name] = await self._start_broker(name, template, f"{self._subnet}.{number}")

    async def _start_broker(self, name: str, template: Json, ip: str) -> Container:
        settings = self.api.of("ConfigMap")[template["spec"]["volumes"][0]["configMap"]["name"]]["data"]
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        own = broker_file(name.rpartition("-")[2])
        for file in (COMMON_FILE, own):
            text = settings[file].replace(LOGIN_PATH, str(folder)).replace(CERTIFICATES_PATH, str(folder))
            (folder / file).write_text(text)
        self._mount_secrets(folder, template["spec"])
        common = parse_properties(settings[COMMON_FILE])
        servers = common["controller.quorum.bootstrap.servers"]
        listeners = ",".join(it.replace("://:", f"://{ip}:") for it in common["listeners"].split(","))
        overrides = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": str(folder / "data"),
            "controller.quorum.bootstrap.servers": re.sub(r"demo-(\d+)[^:]*", rf"{self._subnet}.\1", servers),
            "http.listener": f"{ip}:8080",
            # Certificates name hosts of Kubernetes, and here brokers connect by addresses.
            "ssl.endpoint.identification.algorithm": "",
        }
        log = folder / "log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ottla_broker"),
                *(part for file in (COMMON_FILE, own) for part in ("--config", str(folder / file))),
                *(part for key, value in overrides.items() for part in ("--set", f"{key}={value}")),
                stdout=output,
                stderr=output,
                env=os.environ | {"POD_NAME": name, "BROKER_ID": name.rpartition("-")[2]},
            )
        return Container(process, log)

    def _mount_secrets(self, folder: Path, spec: Json) -> None:
        """Writes the Secrets' current values where the broker reads them. A deleted Secret leaves
        its files."""
        for volume in spec["volumes"]:
            values = self.secret(volume["secret"]["secretName"]) if "secret" in volume else {}
            for item in volume["secret"]["items"] if values else ():
                scratch = folder / f".{item['path']}"
                scratch.write_text(values[item["key"]])
                scratch.replace(folder / item["path"])

    async def _update_pod_status(self, pod: Json, container: Container) -> None:
        ready = container.is_running and await _is_ready(pod["status"]["podIP"])
        if ready != (pod["status"]["conditions"][0]["status"] == "True"):
            pod["status"]["conditions"] = _ready_condition(ready)
        if not container.is_running:
            last_line = container.log.read_text().strip().splitlines()[-1:]
            terminated = {"terminated": {"message": "".join(last_line), "exitCode": 2}}
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
            pod["status"]["containerStatuses"] = [{"name": "broker", "state": waiting, "lastState": terminated}]

    async def _stop_broker(self, name: str) -> None:
        container = self._containers.pop(name)
        if container.is_running:
            container.process.terminate()
            await container.process.wait()


@dataclass(slots=True)
class RecordingEventRecorder(EventRecorder):
    """Keeps events in memory."""

    messages: list[str] = field(default_factory=list)

    async def record(
        self, resource: Json, reason: str, message: str, *, is_warning: bool = False, lasts: bool = False
    ) -> None:
        self.messages.append(f"{reason}: {message}")


def run_with_cluster(
    folder: Path,
    replicas: int,
    scenario: Callable[[ProcessKubelet], Awaitable[None]],
    *,
    kubelet_class: type[ProcessKubelet] = ProcessKubelet,
    **spec: object,
) -> None:
    """Runs `scenario` when the Cluster `demo` with this `spec` is ready, and stops its brokers at
    the end.
    """

    async def run() -> None:
        kubelet = kubelet_class(folder)
        kubelet.api.put_cluster({"replicas": replicas, "storage": {"size": "1Gi"}, **spec})
        try:
            await kubelet.wait_until_ready(within_s=90)
            await scenario(kubelet)
        finally:
            await kubelet.stop()

    asyncio.run(run())


@asynccontextmanager
async def connect_to_brokers(kubelet: ProcessKubelet) -> AsyncIterator[KafkaClient]:
    (pod, *_) = kubelet.api.of("Pod").values()
    async with connect(f"{pod['status']['podIP']}:9091", security=operator_login(kubelet)) as client:
        yield client


def operator_login(kubelet: ProcessKubelet) -> ClientSecurity:
    values = kubelet.secret("demo-inter-broker-login")
    passwords = LoginSecret.parse(values).in_use if values else None
    return operator_security(passwords, [InterBrokerLogin.OPTIONAL])


def _ready_condition(ready: bool) -> list[Json]:
    return [{"type": "Ready", "status": str(ready), "lastTransitionTime": now_text()}]


async def _is_ready(ip: str) -> bool:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
            session.get(f"http://{ip}:8080/readyz") as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
