"""A complete Kubernetes: control plane, cluster DNS and nodes, each node in its own namespaces.

    with run_kubernetes(folder, nodes=3) as kube:
        kube.load_image(image_archive)
        kube.plane.admin.request("POST", …)

Inside the block, the calling thread and processes that it starts are on the node network
10.250.0.0/24 but outside the cluster, like a client in the same data centre. Needs root.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.jars import skip_or_fail_in_ci
from tests.kube.control_plane import ControlPlane
from tests.kube.images import archive
from tests.kube.images.dockerfile import Stage
from tests.kube.machine import CGROUP_ROOT, Machine, connect_machines, remove_leftover_machines
from tests.kube.node import PAUSE_IMAGE, Node
from tests.kube.node_packages import ensure_unpacked
from tests.kube.programs import find_program
from tests.kube.volume_provisioner import VolumeProvisioner
from tests.waiting import eventually

NODE_NETWORK = "10.250.0"  # of the host and the nodes, without the last byte
BRIDGE = "bridge0"
READY_WITHIN_S = 60.0
REQUIRED_PROGRAMS = ("ip", "nsenter", "unshare", "sysctl", "openssl")
COREFILE = """\
cluster.local:53 in-addr.arpa:53 {{
  bind {address}
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 1
  }}
}}
"""


class Kubernetes:
    """`host` is the machine of the control plane and of the test; `nodes` are in the order of their
    numbers, from 1.
    """

    def __init__(self, folder: Path, host: Machine, plane: ControlPlane) -> None:
        self.folder = folder
        self.host = host
        self.plane = plane
        self.nodes: list[Node] = []
        self._images: list[Path] = []
        self._volume_provisioner = VolumeProvisioner(plane.admin, folder / "volumes")
        corefile = folder / "Corefile"
        corefile.write_text(COREFILE.format(address=plane.address, kubeconfig=plane.kubeconfig()))
        self.dns = host.create_daemon([find_program("coredns"), "-conf", corefile], folder / "coredns.log")
        self._pause_image = _build_pause_image(folder)
        self._images.append(self._pause_image)

    def load_image(self, image: Path) -> None:
        """Loads the images of an OCI archive into every node, including nodes added later."""
        self._images.append(image)
        for node in self.nodes:
            node.load_image(image)

    def tag_image(self, image: str, name: str) -> None:
        """Gives an image a second name on every current node."""
        for node in self.nodes:
            node.tag_image(image, name)

    def add_node(self, images: Sequence[Path] = ()) -> Node:
        """Adds a node and returns when it is Ready. `images` are the archives to load besides
        the pause image; by default, all that `load_image` loaded.
        """
        number = len(self.nodes) + 1
        address = f"{NODE_NETWORK}.{number + 10}"
        node = Node(number, self.folder / f"node-{number}", self.plane, address)
        self.nodes.append(node)
        self._start_node(node, [self._pause_image, *images] if images else self._images)
        return node

    def power_off(self, node: Node) -> None:
        """Removes the node from the network, then kills its processes, so that no connection is
        closed properly.
        """
        self.host.run("ip", "link", "delete", node.name)
        node.power_off()

    def power_on(self, node: Node, images: Sequence[Path] = ()) -> None:
        """Starts a node that was powered off and returns when it is Ready. Persistent volumes
        have kept their data. `images` as for `add_node`.
        """
        before = self._last_heartbeat(node)
        node.power_on()
        self._start_node(node, [self._pause_image, *images] if images else self._images)
        eventually(
            lambda: self._last_heartbeat(node) != before,
            within_s=READY_WITHIN_S,
            message=f"{node.name} sends heartbeats again",
        )

    def remove_node(self, node: Node) -> None:
        """Removes the last added node, from Kubernetes too."""
        assert self.nodes.pop() is node
        node.machine.power_off()
        self.plane.admin.request("DELETE", f"/api/v1/nodes/{node.name}")
        node.remove()
        for machine in (self.host, *(it.machine for it in self.nodes)):
            machine.run("ip", "route", "flush", f"10.244.{node.number}.0/24")

    def is_node_ready(self, node: Node) -> bool:
        conditions = (self.plane.admin.get(f"/api/v1/nodes/{node.name}") or {}).get("status", {}).get("conditions", [])
        return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)

    def start(self) -> None:
        """Starts everything except nodes."""
        self.plane.start()
        self.plane.start_controllers()
        self.dns.start()
        self._volume_provisioner.start()

    def stop(self) -> None:
        """Stops everything and removes all machines."""
        self._volume_provisioner.stop()
        for node in self.nodes:
            node.remove()
        self.plane.stop()
        self.host.remove()

    def _start_node(self, node: Node, images: Sequence[Path]) -> None:
        """Connects a node to the network, starts it, loads images, and waits until it is Ready."""
        self._connect_to_network(node)
        node.start()
        for image in images:
            node.load_image(image)
        eventually(
            lambda: self.is_node_ready(node),
            within_s=READY_WITHIN_S,
            message=lambda: f"{node.name} is ready: {node.kubelet.log_tail()}",
        )

    def _last_heartbeat(self, node: Node) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
        return str((self.plane.admin.get(path) or {}).get("spec", {}).get("renewTime"))

    def _connect_to_network(self, node: Node) -> None:
        """Connects a node to the host's bridge and adds the routes of all pod networks."""
        connect_machines(self.host, node.machine, node.name, bridge=BRIDGE, address=f"{node.address}/24")
        node.machine.run("ip", "route", "add", "default", "via", f"{NODE_NETWORK}.1")
        self.host.run("ip", "route", "replace", f"10.244.{node.number}.0/24", "via", node.address)
        for other in self.nodes:
            if other is node:
                continue
            other.machine.run("ip", "route", "replace", f"10.244.{node.number}.0/24", "via", node.address)
            node.machine.run("ip", "route", "add", f"10.244.{other.number}.0/24", "via", other.address)


@contextmanager
def run_kubernetes(folder: Path, nodes: int = 1) -> Iterator[Kubernetes]:
    """Runs a Kubernetes with this many nodes during the block. Skips the test, or fails it in
    continuous integration, if this machine cannot run nodes.
    """
    if missing := missing_requirement():
        skip_or_fail_in_ci(missing)
    ensure_unpacked()  # packages cannot be downloaded from the node network
    remove_leftover_machines()
    host = Machine("host")
    host.run("ip", "link", "add", BRIDGE, "type", "bridge")
    host.run("ip", "addr", "add", f"{NODE_NETWORK}.1/24", "dev", BRIDGE)
    host.run("ip", "link", "set", BRIDGE, "up")
    host.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    with host.enter_network():
        plane = ControlPlane(folder / "plane", address=f"{NODE_NETWORK}.1", machine=host)
        kube = Kubernetes(folder, host, plane)
        try:
            kube.start()
            for _ in range(nodes):
                kube.add_node()
            yield kube
        finally:
            kube.stop()


def missing_requirement() -> str:
    """A sentence about a requirement of nodes that this machine lacks; empty if it has all."""
    if os.geteuid() != 0:
        return "Kubernetes nodes need root to create namespaces"
    if missing := [name for name in REQUIRED_PROGRAMS if shutil.which(name) is None]:
        return f"Kubernetes nodes need {', '.join(missing)} on PATH"
    if not os.access(CGROUP_ROOT, os.W_OK):
        return f"Kubernetes nodes need {CGROUP_ROOT} to be writable"
    trial = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"cannot create namespaces on this machine: {trial.stderr.strip()}" if trial.returncode else ""


def _build_pause_image(folder: Path) -> Path:
    """The image of the container that holds a pod's namespaces."""
    with tempfile.TemporaryDirectory() as layer:
        shutil.copy(find_program("pause"), layer)
        path = folder / "pause.tar"
        archive.write_archive(path, PAUSE_IMAGE, Stage("pause", "scratch", entrypoint=["/pause"]), [Path(layer)])
        return path
