"""Reads from events why pods are not created or do not become ready, where no status shows it."""

import datetime
from dataclasses import replace
from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.kinds import EVENT
from ottla_operator.kube.owned_objects import ClusterObjects
from ottla_operator.plan.observed_events import creation_failure, start_failure
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import format_time
from ottla_operator.resources.model import Json

ASK_AFTER: Final = datetime.timedelta(seconds=5)  # most pods start without a warning
OUTDATED_AFTER: Final = datetime.timedelta(minutes=3)  # Kubernetes repeats what still holds


async def find_creation_failure(api: ApiClient, cluster: Cluster, observed: ClusterObjects) -> str:
    """The reason why the StatefulSet cannot create a pod; empty if all its pods exist, or no event
    has a reason."""
    stateful_set = observed.stateful_set
    if stateful_set is None or len(observed.pods) >= stateful_set["spec"]["replicas"]:
        return ""
    return creation_failure(await _warnings(api, cluster, "StatefulSet", cluster.name), observed.newest_pod)


async def add_start_failures(api: ApiClient, cluster: Cluster, observed: ClusterObjects) -> None:
    """Sets the `problem` of pods that are not ready, if their status shows none, from their
    events."""
    now = datetime.datetime.now(datetime.UTC)
    for id_, pod in observed.pods.items():
        if pod.is_ready or pod.is_terminating or pod.problem or not pod.node or now - pod.since < ASK_AFTER:
            continue
        since = format_time((now - OUTDATED_AFTER).timestamp())
        problem = start_failure(await _warnings(api, cluster, "Pod", pod.name), since)
        observed.pods[id_] = replace(pod, problem=problem)


async def _warnings(api: ApiClient, cluster: Cluster, kind: str, name: str) -> list[Json]:
    fields = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
    return await api.list(EVENT, cluster.metadata.namespace, fields=fields)
