"""Reads the state of the pods of brokers and drivers from their status."""

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla_operator.plan.inter_broker_login import InterBrokerLogin
from ottla_operator.plan.inter_broker_tls import InterBrokerTls
from ottla_operator.plan.objects import names
from ottla_operator.plan.pipeline import names as pipeline_names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import parse_time
from ottla_operator.resources.model import Json

STARTING_REASONS: Final = frozenset({"ContainerCreating", "PodInitializing"})  # every pod waits for these at first
IMAGE_ERRORS: Final = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
"""Kubernetes' reasons for a container that waits for its image."""
CRASH_LOOP: Final = "CrashLoopBackOff"
MAX_MESSAGE_LENGTH: Final = 400


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """A broker's pod.

    `settings`: name of the ConfigMap that it mounts. `login`, `tls`: of its inter-broker listener.
    `passwords`: digest of the inter-broker passwords. `certificates`: name of the Secret with its
    certificates. `restart_at`: the `spec.restartAt` that it was started after. `since`: time since
    which it has been ready, or not ready; for a terminating pod, its deletion timestamp. `port`:
    that brokers and the operator connect to; the Cluster's spec may have another by now.
    `node_ip`: address of its node, empty before it has one. `problem`: the reason why it
    does not run; empty if nothing is known.
    """

    broker: int
    name: str
    uid: str
    is_ready: bool
    is_terminating: bool
    since: datetime.datetime
    pod_hash: str
    settings: str
    login: InterBrokerLogin
    passwords: str
    tls: InterBrokerTls
    certificates: str
    restart_at: str
    image: str
    ip: str
    port: int
    node: str
    node_ip: str
    rack: str
    problem: str

    @property
    def address(self) -> str:
        """host:port for the operator; empty before the pod has an address."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.port}" if host else ""


@dataclass(frozen=True, slots=True)
class PipelinePod:
    """A pod of a Pipeline: a driver's or an executor's; on one machine, a driver's process.

    `settings`: name of the ConfigMap, or hash of the spec, that it was started with.
    `address`: host:port of its runner; empty before it has one. `exit_code`: exit code of the last
    run that has ended; None if none has. `last_message`: the last line of that run, or
    Kubernetes' reason for its end, such as OOMKilled. `problem`: the reason why it does not run.
    """

    name: str
    is_ready: bool
    is_terminating: bool
    phase: str
    settings: str
    address: str
    restarts: int
    exit_code: int | None
    last_message: str
    problem: str


def broker_pods(cluster: Cluster, pods: Iterable[Json]) -> dict[int, BrokerPod]:
    """The brokers' pods by broker id, without pods of other names."""
    return {
        broker: _broker_pod(cluster, broker, it)
        for it in pods
        if (broker := names.broker_id(cluster, it["metadata"]["name"])) is not None
    }


def image_version(image: str) -> str:
    """The tag of an image; its digest if it has no tag. Empty if it has neither, as with `latest`
    by default, which names no version.
    """
    name, _, digest = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")  # a colon before the last slash is that of a port
    return tag or digest


def driver_pods(pods: Iterable[Json]) -> list[PipelinePod]:
    """Drivers, the newest first, terminating ones last."""
    found = [it for it in pods if _component(it) == pipeline_names.DRIVER]
    found.sort(key=lambda it: str(it["metadata"].get("creationTimestamp", "")), reverse=True)
    return sorted(map(_pipeline_pod, found), key=lambda it: it.is_terminating)


def executor_pods(pods: Iterable[Json]) -> list[PipelinePod]:
    """Executors that have not ended and are not terminating."""
    found = [_pipeline_pod(it) for it in pods if _component(it) == pipeline_names.EXECUTOR]
    return [it for it in found if it.phase not in ("Succeeded", "Failed") and not it.is_terminating]


def pod_problems(status: Json) -> Iterator[str]:
    """Reasons why a pod does not run, each with Kubernetes' reason first."""
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"{condition.get('reason', 'Unscheduled')}: {condition.get('message', '')}".rstrip(": ")
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state, last = container.get("state") or {}, (container.get("lastState") or {}).get("terminated") or {}
        if (waiting := state.get("waiting")) and waiting.get("reason") not in STARTING_REASONS:
            message = last_line(last.get("message")) or waiting.get("message") or ""
            yield f"{waiting.get('reason', 'Waiting')}: {message}".rstrip(": ")
        elif (ended := state.get("terminated")) and ended.get("exitCode"):
            yield f"exited with {ended['exitCode']}: {last_line(ended.get('message'))}".rstrip(": ")


def last_line(text: str | None) -> str:
    """The last line that is not blank, shortened."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1].strip()[:MAX_MESSAGE_LENGTH] if lines else ""


def _broker_pod(cluster: Cluster, broker: int, pod: Json) -> BrokerPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ready: Json = next((it for it in status.get("conditions") or [] if it["type"] == "Ready"), {})
    since = metadata.get("deletionTimestamp") or ready.get("lastTransitionTime") or metadata["creationTimestamp"]
    return BrokerPod(
        broker=broker,
        name=metadata["name"],
        uid=metadata["uid"],
        is_ready=ready.get("status") == "True" and "deletionTimestamp" not in metadata,
        is_terminating="deletionTimestamp" in metadata,
        since=parse_time(since),
        pod_hash=annotations.get(names.POD_HASH, ""),
        settings=_mounted_config_map(spec, "settings"),
        login=InterBrokerLogin(annotations.get(names.LOGIN, "")),
        passwords=annotations.get(names.PASSWORDS, ""),
        tls=InterBrokerTls(annotations.get(names.TLS, "")),
        certificates=_mounted_secret(spec, "certificates"),
        restart_at=annotations.get(names.RESTART_AT, ""),
        image=next((it["image"] for it in spec["containers"] if it["name"] == "broker"), ""),
        ip=status.get("podIP") or "",
        port=_container_port(spec, names.BROKERS_PORT) or names.brokers_port(cluster),
        node=spec.get("nodeName") or "",
        node_ip=status.get("hostIP") or "",
        rack=annotations.get(names.RACK, ""),
        problem="; ".join(dict.fromkeys(pod_problems(status))),
    )


def _pipeline_pod(pod: Json) -> PipelinePod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    conditions = {it["type"]: it["status"] for it in status.get("conditions") or []}
    container: Json = next(iter(status.get("containerStatuses") or []), {})
    ended = (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated")
    ip, port = status.get("podIP") or "", _container_port(spec, pipeline_names.HTTP_PORT)
    return PipelinePod(
        name=metadata["name"],
        is_ready=conditions.get("Ready") == "True" and "deletionTimestamp" not in metadata,
        is_terminating="deletionTimestamp" in metadata,
        phase=status.get("phase") or "",
        settings=_mounted_config_map(spec, "pipeline"),
        address=f"{f'[{ip}]' if ':' in ip else ip}:{port}" if ip and port else "",
        restarts=container.get("restartCount") or 0,
        exit_code=(ended or {}).get("exitCode"),
        last_message=last_line((ended or {}).get("message")) or (ended or {}).get("reason") or "",
        problem="; ".join(dict.fromkeys(it for it in pod_problems(status) if not it.startswith(CRASH_LOOP))),
    )


def _component(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(pipeline_names.COMPONENT, ""))


def _mounted_config_map(spec: Json, volume: str) -> str:
    volumes = spec.get("volumes") or []
    return next((str(it["configMap"]["name"]) for it in volumes if it["name"] == volume), "")


def _mounted_secret(spec: Json, volume: str) -> str:
    volumes = spec.get("volumes") or []
    return next((str(it["secret"]["secretName"]) for it in volumes if it["name"] == volume), "")


def _container_port(spec: Json, name: str) -> int:
    """0 if no container has a port of this name."""
    ports = [port for it in spec["containers"] for port in it.get("ports") or []]
    return next((int(it["containerPort"]) for it in ports if it.get("name") == name), 0)
