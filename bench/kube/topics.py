"""The operator with many topics: a real API server without nodes, one broker process, one operator
process.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kube.control_plane import run_control_plane
from tests.kube.custom_resource_definitions import install_crds
from tests.kube.fake_kubelet import create_cluster_with_broker, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

FEW, MANY = 100, 1000
CONCURRENCY = 8
READY_WITHIN_S = 600.0
RESYNCS = 2


def measure() -> Iterator[tuple[str, float]]:
    """Yields the name and value of each measurement in `LINES["topics"]` (`bench.kube.lines`)."""
    with tempfile.TemporaryDirectory() as folder, run_control_plane(Path(folder) / "plane") as plane:
        install_crds(plane.admin)
        operator = OperatorProcess(Path(folder), plane.kubeconfig())
        operator.start()
        try:
            with run_broker_process() as broker:
                resources = NamespaceClient(plane.admin, "events")
                resources.create_namespace()
                create_cluster_with_broker(resources, broker)
                create_topics(resources, range(FEW))
                wait_for_resyncs(operator, RESYNCS)
                yield "memory-100", operator.daemon.resident_memory_kib() / 1024
                for name in resources.list_objects("ottla.dev/v1alpha1", "topics"):
                    resources.delete("Topic", name)
                yield "topics-1000", create_topics(resources, range(FEW, FEW + MANY))
                wait_for_resyncs(operator, 1)  # the resync in progress may still write
                before = operator.count_writes()
                wait_for_resyncs(operator, RESYNCS)
                after = operator.count_writes()
                yield "resync-writes", sum(after.values()) - sum(before.values())
                yield "memory-1000", operator.daemon.resident_memory_kib() / 1024
        finally:
            operator.daemon.stop()


def create_topics(resources: NamespaceClient, numbers: range) -> float:
    """Creates Topic resources, waits until all are Ready, and returns the seconds that took."""
    began = time.monotonic()
    spec = {"clusterRef": {"name": "demo"}, "partitions": 3, "config": {"retention.ms": 86_400_000}}
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(lambda number: resources.create("Topic", f"topic-{number}", spec), numbers))
    eventually(
        lambda: sum(map(is_ready, resources.list_objects("ottla.dev/v1alpha1", "topics").values())) == len(numbers),
        within_s=READY_WITHIN_S,
        message="all topics are Ready",
    )
    return time.monotonic() - began


def is_ready(topic: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = topic.get("status", {}).get("conditions", [])
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def wait_for_resyncs(operator: OperatorProcess, count: int) -> None:
    """Returns when the operator has reconciled all topics `count` more times."""
    before = operator.count_reconciles("Topic")
    pause = threading.Event()
    deadline = time.monotonic() + READY_WITHIN_S
    while operator.count_reconciles("Topic") < before + count:
        assert time.monotonic() < deadline, f"no resync by the operator: {operator.daemon.log_tail()}"
        pause.wait(1)
