"""A Kubernetes node on its own machine: containerd, kubelet and kube-proxy, with the pod network
10.244.<number>.0/24.
"""

import json
import shutil
from pathlib import Path

from tests.daemons import Daemon
from tests.kube.control_plane import POD_NETWORK, ControlPlane
from tests.kube.machine import Machine
from tests.kube.node_packages import ensure_unpacked, program_environment
from tests.kube.programs import find_program
from tests.waiting import eventually

PAUSE_IMAGE = "ottla.test/pause:1"
DISK_SIZE = "8g"  # maximum size of the node's tmpfs
# The kubelet requires these kernel settings and would write them to the real machine. Files with
# the required values are mounted over them.
KERNEL_SETTINGS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
DISABLED_PLUGINS = (
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.aufs",
)


class Node:
    """`folder` holds all files of the node and its containers, but no persistent volumes."""

    def __init__(self, number: int, folder: Path, plane: ControlPlane, address: str) -> None:
        self.number = number
        self.name = f"node-{number}"
        self.address = address
        self.folder = folder
        self._plane = plane
        self._socket = folder / "containerd.sock"
        self._packages = ensure_unpacked()
        self._environment = program_environment(self._packages)
        folder.mkdir(parents=True)
        self.machine = Machine(self.name)
        self._set_up()

    def start(self) -> None:
        """Starts the processes; returns when containerd responds. The API server reports when the
        node is Ready.
        """
        self.containerd.start()
        eventually(
            self._is_containerd_ready, within_s=30, message=lambda: f"containerd responds: {self.containerd.log_tail()}"
        )
        self.kubelet.start()
        self.proxy.start()

    def load_image(self, image: Path) -> None:
        """Imports the images of an OCI archive."""
        self._run_ctr("images", "import", "--digests=false", str(image))

    def tag_image(self, image: str, name: str) -> None:
        """Gives an image a second name."""
        self._run_ctr("images", "tag", "--force", image, name)

    def power_off(self) -> None:
        """Kills all processes. Data that containers wrote outside persistent volumes is lost: it is
        on a tmpfs.
        """
        self.machine.power_off()

    def power_on(self) -> None:
        """Creates the machine again. It then has no network, no running processes and no images."""
        self.machine.remove()
        self.machine = Machine(self.name)
        self._set_up()

    def remove(self) -> None:
        self.machine.remove()
        shutil.rmtree(self.folder)

    def _run_ctr(self, *arguments: str) -> str:
        return self.machine.run(
            "ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments, environment=self._environment
        )

    def _is_containerd_ready(self) -> bool:
        assert self.containerd.is_running, self.containerd.log_tail()
        try:
            return bool(self._run_ctr("version"))
        except AssertionError:
            return False

    def _set_up(self) -> None:
        """Creates folders, mounts, configuration files and the daemons, which `start` starts."""
        folder = self.folder
        for name in ("sysctl", "network", "disk"):
            (folder / name).mkdir(exist_ok=True)
        # Images and containers are many small files, which a tmpfs creates and deletes quickly.
        self.machine.run("mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", folder / "disk")
        for name, value in KERNEL_SETTINGS.items():
            file = folder / "sysctl" / name.rpartition("/")[2]
            file.write_text(value)
            self.machine.run("mount", "--bind", file, f"/proc/sys/{name}")
        self.machine.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        (folder / "containerd.toml").write_text(self._containerd_config())
        (folder / "network" / "10-pods.conflist").write_text(json.dumps(self._network_config()))
        (folder / "kubelet.json").write_text(json.dumps(self._kubelet_config()))
        (folder / "proxy.json").write_text(json.dumps(self._proxy_config()))
        node, env = find_program("node"), self._environment
        create_daemon = self.machine.create_daemon
        self.containerd: Daemon = create_daemon(
            ["containerd", "--config", folder / "containerd.toml"], folder / "containerd.log", env
        )
        self.kubelet: Daemon = create_daemon(
            [
                *(node, "kubelet", f"--config={folder}/kubelet.json", f"--root-dir={folder}/disk/kubelet"),
                *(f"--kubeconfig={self._plane.kubeconfig('node')}", f"--cert-dir={folder}/certificates"),
                *(f"--hostname-override={self.name}", f"--node-ip={self.address}", "--v=2"),
            ],
            folder / "kubelet.log",
            env,
        )
        self.proxy: Daemon = create_daemon(
            [node, "kube-proxy", f"--config={folder}/proxy.json", f"--hostname-override={self.name}"],
            folder / "kube-proxy.log",
            env,
        )

    def _containerd_config(self) -> str:
        folder = self.folder
        return f"""\
version = 2
root = "{folder}/disk/containerd"
state = "{folder}/disk/state"
disabled_plugins = {json.dumps(DISABLED_PLUGINS)}
[grpc]
  address = "{self._socket}"
[ttrpc]
  address = "{self._socket}.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{self._packages}/usr/sbin/runc"
      Root = "{folder}/disk/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{self._packages}/usr/lib/cni"
    conf_dir = "{folder}/network"
"""

    def _network_config(self) -> dict[str, object]:
        """CNI configuration: every pod is connected to the node by a veth pair, and the node
        routes. Services then work without bridge-netfilter, a kernel module.
        """
        ranges = [[{"subnet": f"10.244.{self.number}.0/24"}]]
        addresses = {"type": "host-local", "dataDir": f"{self.folder}/disk/addresses", "ranges": ranges}
        routed = {"type": "ptp", "ipMasq": False, "ipam": addresses | {"routes": [{"dst": "0.0.0.0/0"}]}}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [routed]}

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failSwapOn": False,
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.machine.cgroup,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "clusterDNS": [self._plane.address],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "podLogsDir": f"{self.folder}/disk/logs",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "healthzPort": 0,
            "readOnlyPort": 0,
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 10,
            "syncFrequency": "5s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "0%",
                "imagefs.available": "0%",
                "nodefs.inodesFree": "0%",
            },
            "enforceNodeAllocatable": [],
            "volumePluginDir": f"{self.folder}/disk/kubelet/plugins",
        }

    def _proxy_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": POD_NETWORK,
            "clientConnection": {"kubeconfig": str(self._plane.kubeconfig("node"))},
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # 0 leaves these settings of the whole machine unchanged.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
