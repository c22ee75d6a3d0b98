"""Three brokers on a real kubelet, kept by the installed operator: how soon they serve, and what producers notice of a roll."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kube.cluster import Kube, cluster
from tests.kube.images import build
from tests.kube.installed import Installed
from tests.kube.operators import Resources
from tests.kube.under_load import longest_stall_s, under_load
from tests.waiting import eventually

BROKERS = 3
CONFIG = {"offsets.topic.num.partitions": 5}
SPEC = {
    "replicas": BROKERS,
    "storage": {"size": "1Gi"},
    "listeners": [{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "NodePort"}],
    "config": CONFIG,
}
TOPIC: dict[str, Any] = {
    "clusterRef": {"name": "demo"},
    "partitions": 6,
    "replicas": BROKERS,
    "config": {"min.insync.replicas": 2},
}


def measure() -> Iterator[tuple[str, float]]:
    archives = [build.archived(name) for name in ("broker", "operator")]
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "kube", nodes=1) as kube:
        for archive in archives:
            kube.has(archive)
        operator = Installed(kube)
        operator.install()
        yield from _measured(kube, operator)


def _measured(kube: Kube, operator: Installed) -> Iterator[tuple[str, float]]:
    resources = Resources(kube.plane.admin, "events")
    resources.make_namespace()
    began = time.monotonic()
    resources.make("Cluster", "demo", SPEC)
    resources.wait("Cluster", "demo", within_s=240)
    yield "ready", time.monotonic() - began
    resources.make("Topic", "flights", TOPIC)
    resources.wait("Topic", "flights")
    port = resources.of("v1", "services")["demo-out-bootstrap"]["spec"]["ports"][0]["nodePort"]
    at = f"{kube.nodes[0].address}:{port}"
    with under_load("flights", TOPIC["partitions"], lambda: at, lambda: is_whole(resources)) as load:
        before = {name: it["metadata"]["uid"] for name, it in resources.of("v1", "pods").items()}
        began = time.monotonic()
        # A setting that brokers do not change while they run.
        resources.edit("Cluster", "demo", {"config": {**CONFIG, "num.partitions": 7}})

        def rolled() -> bool:
            seen = resources.of("v1", "pods")
            return len(seen) == BROKERS and all(it["metadata"]["uid"] != before[name] for name, it in seen.items())

        eventually(rolled, within_s=300, what=operator.said)
        resources.wait("Cluster", "demo", within_s=240)
        yield "roll", (time.monotonic() - began) / BROKERS
    yield "stall", longest_stall_s(load.producers[0])


def is_whole(resources: Resources) -> bool:
    return resources.condition("Cluster", "demo")["status"] == "True"
