"""Three brokers on a real kubelet, managed by the installed operator: time to Ready, and stalls
during a roll.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.kube.cluster import Kube, cluster
from tests.kube.images import build
from tests.kube.installed import Installed
from tests.kube.kept import NAMESPACE, SPEC, Kept
from tests.kube.moments import Moments
from tests.kube.operators import Resources
from tests.kube.under_load import longest_stall_s

# num.partitions needs a restart of the brokers.
CHANGED_SPEC = {"config": {**SPEC["config"], "num.partitions": 7}}


def measure() -> Iterator[tuple[str, float]]:
    archives = [build.archived(name) for name in ("broker", "operator")]
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "kube", nodes=1) as kube:
        for archive in archives:
            kube.has(archive)
        installed = Installed(kube)
        installed.install()
        yield from _measure_cluster(kube, installed)


def _measure_cluster(kube: Kube, installed: Installed) -> Iterator[tuple[str, float]]:
    api = kube.plane.admin
    api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with Moments(api, NAMESPACE) as moments:
        demo = Kept(installed, Resources(api, NAMESPACE), moments)
        began = time.monotonic()
        demo.make()
        yield "ready", time.monotonic() - began
        with demo.under_load("flights") as load:
            before = demo.uids()
            began = time.monotonic()
            demo.edit(CHANGED_SPEC)
            demo.one_after_the_other(before)
            demo.wait()
            yield "roll", (time.monotonic() - began) / len(before)
        yield "stall", longest_stall_s(load.producers[0])
