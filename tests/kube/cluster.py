"""A whole Kubernetes: control plane, cluster DNS and nodes, on machines of a test's own.

    with cluster(folder, nodes=3) as kube:
        kube.has(archive_of_an_image)
        kube.plane.admin.ask("POST", …)

While it is there, the calling thread and what it starts is on the network 10.250.0.0/24 beside the nodes: outside the cluster, as a
client on the same premises is. Root only.
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
from tests.kube.machine import GROUPS, Machine, clear_left_over, link
from tests.kube.node import PAUSE, Node
from tests.kube.packages import unpacked
from tests.kube.programs import program
from tests.kube.storage import Storage
from tests.waiting import eventually

PREMISES = "10.250.0"
READY_WITHIN_S = 60.0
NEEDED = ("ip", "nsenter", "unshare", "sysctl", "openssl")
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


class Kube:
    """`premises`: the machine of the control plane and of the test itself. `nodes`: in the order of their numbers, from 1."""

    def __init__(self, folder: Path, premises: Machine, plane: ControlPlane) -> None:
        self.folder = folder
        self.premises = premises
        self.plane = plane
        self.nodes: list[Node] = []
        self._images: list[Path] = []
        self._storage = Storage(plane.admin, folder / "volumes")
        corefile = folder / "Corefile"
        corefile.write_text(COREFILE.format(address=plane.address, kubeconfig=plane.kubeconfig()))
        self.dns = premises.daemon([program("coredns"), "-conf", corefile], folder / "coredns.log")
        self._pause = _pause_image(folder)
        self._images.append(self._pause)

    def has(self, image: Path) -> None:
        """Gives every node, those to come too, the images of an archive."""
        self._images.append(image)
        for node in self.nodes:
            node.has(image)

    def call(self, image: str, name: str) -> None:
        """Gives an image another name beside, on every node that there is."""
        for node in self.nodes:
            node.call(image, name)

    def add_node(self, images: Sequence[Path] = ()) -> Node:
        """Returns when it is ready. `images`: archives, if it is to have just these."""
        number = len(self.nodes) + 1
        address = f"{PREMISES}.{number + 10}"
        node = Node(number, self.folder / f"node-{number}", self.plane, address)
        self.nodes.append(node)
        self._join(node, [self._pause, *images] if images else self._images)
        return node

    def power_off(self, node: Node) -> None:
        """First its cable is cut, so that no connection says good-bye."""
        self.premises.run("ip", "link", "delete", node.name)
        node.power_off()

    def power_on(self, node: Node, images: Sequence[Path] = ()) -> None:
        """One that was powered off. Returns when it is ready again; volumes are as they were. `images`: as `add_node`."""
        before = self._heartbeat(node)
        node.power_on()
        self._join(node, [self._pause, *images] if images else self._images)
        eventually(lambda: self._heartbeat(node) != before, within_s=READY_WITHIN_S, message=f"{node.name} is heard of")

    def remove(self, node: Node) -> None:
        """The last one that was added; Kubernetes forgets it."""
        assert self.nodes.pop() is node
        node.machine.off()
        self.plane.admin.ask("DELETE", f"/api/v1/nodes/{node.name}")
        node.remove()
        for machine in (self.premises, *(it.machine for it in self.nodes)):
            machine.run("ip", "route", "flush", f"10.244.{node.number}.0/24")

    def ready(self, node: Node) -> bool:
        found = self.plane.admin.get(f"/api/v1/nodes/{node.name}")
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return any(seen["type"] == "Ready" and seen["status"] == "True" for seen in conditions)

    def start(self) -> None:
        self.plane.start()
        self.plane.start_controllers()
        self.dns.start()
        self._storage.start()

    def stop(self) -> None:
        self._storage.stop()
        for node in self.nodes:
            node.remove()
        self.plane.stop()
        self.premises.remove()

    def _join(self, node: Node, images: Sequence[Path]) -> None:
        self._wire(node)
        node.start()
        for image in images:
            node.has(image)
        eventually(
            lambda: self.ready(node),
            within_s=READY_WITHIN_S,
            message=lambda: f"{node.name} is ready: {node.kubelet.log_tail()}",
        )

    def _heartbeat(self, node: Node) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
        return str((self.plane.admin.get(path) or {}).get("spec", {}).get("renewTime"))

    def _wire(self, node: Node) -> None:
        link(self.premises, node.machine, node.name, bridge="premises", address=f"{node.address}/24")
        node.machine.run("ip", "route", "add", "default", "via", f"{PREMISES}.1")
        self.premises.run("ip", "route", "replace", f"10.244.{node.number}.0/24", "via", node.address)
        for other in self.nodes:
            if other is node:
                continue
            other.machine.run("ip", "route", "replace", f"10.244.{node.number}.0/24", "via", node.address)
            node.machine.run("ip", "route", "add", f"10.244.{other.number}.0/24", "via", other.address)


@contextmanager
def cluster(folder: Path, nodes: int = 1) -> Iterator[Kube]:
    if lacking := missing():
        skip_or_fail_in_ci(lacking)
    unpacked()  # while this thread still is on a network where packages can be had
    clear_left_over()
    premises = Machine("premises")
    premises.run("ip", "link", "add", "premises", "type", "bridge")
    premises.run("ip", "addr", "add", f"{PREMISES}.1/24", "dev", "premises")
    premises.run("ip", "link", "set", "premises", "up")
    premises.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    with premises.entered():
        plane = ControlPlane(folder / "plane", address=f"{PREMISES}.1", machine=premises)
        kube = Kube(folder, premises, plane)
        try:
            kube.start()
            for _ in range(nodes):
                kube.add_node()
            yield kube
        finally:
            kube.stop()


def missing() -> str:
    """What this machine lacks to run nodes, in words; empty when nothing."""
    if os.geteuid() != 0:
        return "only root may make the namespaces that nodes of Kubernetes need"
    if lacking := [name for name in NEEDED if shutil.which(name) is None]:
        return f"nodes of Kubernetes need {', '.join(lacking)} on PATH"
    if not os.access(GROUPS, os.W_OK):
        return f"nodes of Kubernetes need {GROUPS} to be writable"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"namespaces may not be made here: {tried.stderr.strip()}" if tried.returncode else ""


def _pause_image(folder: Path) -> Path:
    """The container that holds a pod's namespaces."""
    with tempfile.TemporaryDirectory() as layer:
        shutil.copy(program("pause"), layer)
        path = folder / "pause.tar"
        archive.write(path, PAUSE, Stage("pause", "scratch", entrypoint=["/pause"]), [Path(layer)])
        return path
