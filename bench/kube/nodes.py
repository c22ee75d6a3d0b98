"""Three brokers on a real kubelet, managed by the installed operator: time to Ready, time
of a rolling restart per broker, and the longest stall of a producer during it.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.kube.client_load import longest_stall_s
from tests.kube.cluster import Kubernetes, run_kubernetes
from tests.kube.images import build
from tests.kube.installed_operator import InstalledOperator
from tests.kube.managed_cluster import NAMESPACE, SPEC, ManagedCluster
from tests.kube.namespace_client import NamespaceClient
from tests.kube.resource_history import ResourceHistory

# num.partitions needs a restart of the brokers.
CHANGED_SPEC = {"config": {**SPEC["config"], "num.partitions": 7}}


def measure() -> Iterator[tuple[str, float]]:
    """Yields the name and value of each measurement in `LINES["nodes"]` (`bench.kube.lines`)."""
    archives = [build.build_archive(name) for name in ("broker", "operator")]
    with tempfile.TemporaryDirectory() as folder, run_kubernetes(Path(folder) / "kube", nodes=1) as kube:
        for archive in archives:
            kube.load_image(archive)
        installed_operator = InstalledOperator(kube)
        installed_operator.install()
        yield from _measure_cluster(kube, installed_operator)


def _measure_cluster(kube: Kubernetes, installed_operator: InstalledOperator) -> Iterator[tuple[str, float]]:
    api = kube.plane.admin
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with ResourceHistory(api, NAMESPACE) as history:
        demo = ManagedCluster(installed_operator, NamespaceClient(api, NAMESPACE), history)
        began = time.monotonic()
        demo.create()
        yield "ready", time.monotonic() - began
        with demo.run_clients("flights") as load:
            before = demo.uids()
            began = time.monotonic()
            demo.patch_spec(CHANGED_SPEC)
            demo.wait_for_rolling_restart(before)
            demo.wait_for_status()
            yield "roll", (time.monotonic() - began) / len(before)
        yield "stall", longest_stall_s(load.producers[0])
