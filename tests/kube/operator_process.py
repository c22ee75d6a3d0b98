"""An operator as a process beside an API server."""

import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.daemons import Daemon
from tests.kube.images.build import REGISTRY
from tests.ports import free_port
from tests.waiting import eventually

CHECKOUT = Path(__file__).parents[2]
# kio imports hypothesis (8 MiB) if it is installed, as it is for tests and not in the image.
PROGRAM = "import sys; sys.modules['hypothesis'] = None; from ottla_operator.cli.main import main; sys.exit(main())"


@dataclass
class OperatorProcess:
    """`folder` gets the log; `lease` is the Lease by which operators elect the active one; metrics
    and health are at `port`.
    """

    folder: Path
    kubeconfig: Path
    name: str = "operator"
    lease: str = "ottla-operator"
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        command = [sys.executable, "-c", PROGRAM, "operator", "--http", f"127.0.0.1:{self.port}"]
        paths = os.pathsep.join(str(CHECKOUT / it) for it in ("broker-image", "operator"))
        environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": paths,
            "OTTLA_BROKER_IMAGE": f"{REGISTRY}/ottla-broker",
            "OTTLA_BROKER_VERSION": "test",
            "OTTLA_SPARK_IMAGE": f"{REGISTRY}/ottla-spark:test",
            "POD_NAMESPACE": "default",
            "POD_NAME": self.name,
            "OTTLA_OPERATOR_LEASE": self.lease,
        }
        self.daemon = Daemon(command, self.folder / f"{self.name}.log", environment)

    def start(self) -> None:
        """Starts the process and returns when it serves metrics."""
        self.daemon.start()
        eventually(self.serves_metrics, message=lambda: f"{self.name} serves metrics: {self.daemon.log_tail()}")

    def serves_metrics(self) -> bool:
        try:
            return bool(self.metrics())
        except OSError:
            assert self.daemon.is_running, self.daemon.log_tail()
            return False

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError:
            return False

    def metrics(self) -> dict[str, float]:
        """Metrics by name and labels, as in /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return {name: float(value) for name, _, value in (it.rpartition(" ") for it in lines if not it.startswith("#"))}

    @property
    def is_active(self) -> bool:
        return self.metrics()["ottla_operator_active"] == 1

    def count_reconciles(self, kind: str = "Cluster") -> float:
        """Number of completed reconciles of a kind."""
        return self.metrics().get(f'ottla_operator_reconciles_total{{kind="{kind}",result="done"}}', 0)

    def count_writes(self) -> dict[str, float]:
        """Number of writes by kind, without renewals of the operator's Lease."""
        prefix = 'ottla_operator_writes_total{kind="'
        writes = {it[len(prefix) : -2]: value for it, value in self.metrics().items() if it.startswith(prefix)}
        return {kind: value for kind, value in writes.items() if kind != "Lease"}
