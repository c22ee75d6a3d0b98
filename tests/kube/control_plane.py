"""A real Kubernetes control plane: etcd, API server, and for nodes the controller manager and the
scheduler.

    with run_control_plane(folder) as plane:
        plane.admin.request("GET", "/api/v1/namespaces")

Each component can be stopped, killed, paused and started by itself; ports and data stay.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemons import Daemon
from tests.etcd import Etcd
from tests.kube.api_client import ApiClient
from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.kube.machine import Machine
from tests.kube.programs import find_program
from tests.ports import free_port
from tests.waiting import eventually

READY_WITHIN_S = 90.0
LOOPBACK = "127.0.0.1"
SERVICE_NETWORK = "10.96.0.0/16"
POD_NETWORK = "10.244.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
API_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class ControlPlane:
    """`admin` is a client with all permissions.

    Nodes reach the control plane at `address`; on the loopback interface there are no nodes.
    `machine` is the machine to run it on; None is this process's own.
    """

    def __init__(self, folder: Path, address: str = LOOPBACK, machine: Machine | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._machine = machine
        self.address = address
        self.url = f"https://{address}:{free_port()}"
        self.authority: CertificateAuthority = create_certificate_authority(
            folder / "pki", {LOOPBACK, address, API_SERVICE_ADDRESS}, API_SERVER_NAMES
        )
        self._tokens = {name: secrets.token_hex(16) for name in ("admin", "controllers", "scheduler", "node")}
        (folder / "tokens.csv").write_text(
            "".join(f'{token},{name},{name},"system:masters"\n' for name, token in self._tokens.items())
        )
        self.admin = self.client_for("admin")
        self.etcd = Etcd(folder)
        self.api_server = self._create_daemon("kube-apiserver", self._api_server_flags())
        self.controller_manager = self._create_daemon("kube-controller-manager", self._controller_manager_flags())
        self.scheduler = self._create_daemon("kube-scheduler", self._scheduler_flags())

    def client_for(self, name: str) -> ApiClient:
        """A client with all permissions: `name` is admin, controllers, scheduler or node."""
        return ApiClient(self.url, self.authority.certificate, self._tokens[name])

    def kubeconfig(self, name: str = "admin") -> Path:
        """Path of a kubeconfig for `client_for(name)`."""
        path = self.folder / f"{name}.kubeconfig"
        return path if path.exists() else self.client_for(name).write_kubeconfig(path)

    def start(self) -> None:
        """Starts etcd and the API server; returns when the API server is ready."""
        self.etcd.start()
        if self._machine is not None:
            self._machine.adopt(self.etcd.daemon)
        self.start_api_server()

    def start_api_server(self) -> None:
        """Starts the API server, also after it was killed, and returns when it is ready."""
        self.api_server.start()
        self.wait_until_ready()

    def start_controllers(self) -> None:
        """Starts the controller manager and the scheduler; returns when the controllers
        reconcile."""
        self.controller_manager.start()
        self.scheduler.start()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually(
            lambda: self.admin.get(account),
            within_s=READY_WITHIN_S,
            message=lambda: f"a controller creates service accounts: {self.controller_manager.log_tail()}",
        )

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.api_server.is_running, self.api_server.log_tail()
            return self.admin.is_ready()

        eventually(is_ready, within_s=READY_WITHIN_S, message="the API server is ready")

    def stop(self) -> None:
        self.scheduler.kill()
        self.controller_manager.kill()
        self.api_server.kill()  # a clean shutdown would gain nothing: all its data is in etcd
        self.etcd.daemon.stop()

    def _create_daemon(self, component: str, flags: dict[str, str | Path]) -> Daemon:
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        command: list[str | Path] = [find_program("control-plane"), component, *arguments]
        log = self.folder / f"{component}.log"
        return self._machine.create_daemon(command, log) if self._machine else Daemon(command, log)

    def _api_server_flags(self) -> dict[str, str | Path]:
        is_loopback = self.address.startswith("127.")
        return {
            "etcd-servers": self.etcd.url,
            "secure-port": self.url.rpartition(":")[2],
            "bind-address": LOOPBACK if is_loopback else "0.0.0.0",
            "advertise-address": self.address,
            # The API server must not publish a loopback address as its endpoint.
            **({"endpoint-reconciler-type": "none"} if is_loopback else {}),
            "tls-cert-file": self.authority.server_certificate,
            "tls-private-key-file": self.authority.server_key,
            "client-ca-file": self.authority.certificate,
            "service-account-key-file": self.authority.service_account_key,
            "service-account-signing-key-file": self.authority.service_account_key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": SERVICE_NETWORK,
            "allow-privileged": "true",
            "kubelet-preferred-address-types": "InternalIP",
            "profiling": "false",
            "shutdown-delay-duration": "0s",
        }

    def _controller_manager_flags(self) -> dict[str, str | Path]:
        """Flags of the controller manager, with shorter intervals than Kubernetes' defaults."""
        kubeconfig = self.kubeconfig("controllers")
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "secure-port": "0",  # several control planes may run on one network
            "cert-dir": self.folder / "controllers",
            "service-account-private-key-file": self.authority.service_account_key,
            "root-ca-file": self.authority.certificate,
            "leader-elect": "false",
            "kube-api-qps": "500",
            "kube-api-burst": "1000",
            "node-monitor-period": "1s",
            "node-monitor-grace-period": "12s",
            "pvclaimbinder-sync-period": "1s",
            "profiling": "false",
        }

    def _scheduler_flags(self) -> dict[str, str | Path]:
        kubeconfig = self.kubeconfig("scheduler")
        config = self.folder / "scheduler.json"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "podInitialBackoffSeconds": 1,
                    "podMaxBackoffSeconds": 2,
                    "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
                }
            )
        )
        return {
            "config": config,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "secure-port": "0",
            "cert-dir": self.folder / "scheduler",
        }


@contextmanager
def run_control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Runs etcd and an API server on the loopback interface during the block."""
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
