"""What the pods of brokers say of themselves, from their status as the kubelet writes it."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from ottla_operator.plan.objects import names
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json

# What every pod waits for at first.
_PASSING = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class BrokerPod:
    """`settings`: name of the ConfigMap that it mounts. `certificates`: names those it was started with; empty without. `since`: from when on it has been
    ready, or not ready; of one that leaves, when it should have gone. `port`: where brokers and the operator reach it, which the Cluster may say otherwise by now;
    0 when the pod does not say. `trouble`: what keeps it from running, in words; empty when nothing is known."""

    broker: int
    name: str
    uid: str
    is_ready: bool
    is_terminating: bool
    since: datetime.datetime
    pod_hash: str
    settings: str
    certificates: str
    image: str
    ip: str
    port: int
    node: str
    rack: str
    problem: str


def broker_pods(cluster: Cluster, pods: list[Json]) -> dict[int, BrokerPod]:
    """By broker. Pods of another Cluster's making are left out."""
    return {
        broker: _broker_pod(broker, it)
        for it in pods
        if (broker := names.broker_id(cluster, it["metadata"]["name"])) is not None
    }


def _broker_pod(broker: int, pod: Json) -> BrokerPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ready: Json = next((it for it in status.get("conditions") or [] if it["type"] == "Ready"), {})
    return BrokerPod(
        broker=broker,
        name=metadata["name"],
        uid=metadata["uid"],
        is_ready=ready.get("status") == "True" and "deletionTimestamp" not in metadata,
        is_terminating="deletionTimestamp" in metadata,
        since=parse_time(
            metadata.get("deletionTimestamp") or ready.get("lastTransitionTime") or metadata["creationTimestamp"]
        ),
        pod_hash=annotations.get(names.POD_HASH, ""),
        settings=next((it["configMap"]["name"] for it in spec.get("volumes") or [] if it["name"] == "settings"), ""),
        certificates=annotations.get(names.CERTIFICATES, ""),
        image=next((it["image"] for it in spec["containers"] if it["name"] == "broker"), ""),
        ip=status.get("podIP") or "",
        port=next((int(it["containerPort"]) for it in _ports(spec) if it.get("name") == names.BROKERS_PORT), 0),
        node=spec.get("nodeName") or "",
        rack=annotations.get(names.RACK, ""),
        problem="; ".join(dict.fromkeys(pod_problems(status))),
    )


def _ports(spec: Json) -> list[Json]:
    return [port for it in spec["containers"] for port in it.get("ports") or []]


def pod_problems(status: Json) -> Iterator[str]:
    """What keeps a pod from running, in words, each with Kubernetes' own word for it first."""
    for it in status.get("conditions") or []:
        if it["type"] == "PodScheduled" and it["status"] == "False":
            yield f"{it.get('reason', 'Unscheduled')}: {it.get('message', '')}".rstrip(": ")
    for it in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state, last = it.get("state") or {}, (it.get("lastState") or {}).get("terminated") or {}
        if (waiting := state.get("waiting")) and waiting.get("reason") not in _PASSING:
            said = last_line(last.get("message")) or waiting.get("message") or ""
            yield f"{waiting.get('reason', 'Waiting')}: {said}".rstrip(": ")
        elif (ended := state.get("terminated")) and ended.get("exitCode"):
            yield f"ended with {ended['exitCode']}: {last_line(ended.get('message'))}".rstrip(": ")


def last_line(text: str | None) -> str:
    """The last that says something."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1].strip()[:400] if lines else ""


def parse_time(text: str) -> datetime.datetime:
    """Of Kubernetes' own form of times."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
