"""kube-router's firewall, built from its Go module. It enforces NetworkPolicies on a node, as the
network plugins of most clusters do.

`python -m tests.kube.network_plugin` builds it once; tests only look it up.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import go_programs
from tests.jars import skip_or_fail_in_ci
from tests.kube.control_plane import SERVICE_NETWORK, ControlPlane
from tests.kube.node import Node
from tests.kube.node_packages import ensure_unpacked, program_environment
from tests.kube.programs import BUILD_COMMAND

SOURCE = Path(__file__).parent / "go_network_policies"
NAME = "kube-router"
CHAINS = "KUBE-ROUTER|KUBE-POD-FW|KUBE-NWPLCY"
"""Matches the names of kube-router's chains, which `--cleanup-config` does not remove."""


def cache_folder() -> Path:
    """The folder with the program built from this source."""
    return go_programs.cache_folder(SOURCE, NAME, go_programs.required_version(SOURCE, "kube-router/v2"))


def build() -> Path:
    """Builds kube-router if it is not built yet. Raises ProgramUnavailable."""
    return go_programs.build_program(SOURCE, cache_folder(), NAME, "minutes")


@contextmanager
def enforce_network_policies(node: Node, plane: ControlPlane) -> Iterator[None]:
    """Enforces NetworkPolicies on the node inside the block.

    Afterwards the rules are removed, because no process would update them for pods that start
    later.
    """
    program = cache_folder() / NAME
    if not program.exists():
        skip_or_fail_in_ci(f"{NAME} is not built: `{BUILD_COMMAND}` builds it once, in minutes")
    command: list[str | Path] = [
        program,
        *("--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
        *(f"--kubeconfig={plane.kubeconfig()}", f"--hostname-override={node.name}"),
        *(f"--service-cluster-ip-range={SERVICE_NETWORK}", "--health-port=0", "--v=1"),
    ]
    environment = _environment(node.folder)
    firewall = node.machine.create_daemon(command, node.folder / "kube-router.log", environment)
    firewall.start()
    try:
        yield
    finally:
        firewall.stop()
        remove_rules = f"iptables-save -t filter | grep -vE '{CHAINS}' | iptables-restore -T filter"
        node.machine.run("sh", "-c", remove_rules, environment=environment)


def _environment(folder: Path) -> dict[str, str]:
    """The environment of kube-router. Creates links to the one program that `iptables` and its
    other names run, as the installation of Debian's package would.
    """
    packages = ensure_unpacked()
    names = folder / "iptables"
    shutil.rmtree(names, ignore_errors=True)  # of an earlier start on this node
    names.mkdir()
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            (names / f"{family}{suffix}").symlink_to(packages / "usr/sbin/xtables-nft-multi")
    environment = program_environment(packages)
    plugins = packages / "usr/lib/x86_64-linux-gnu/xtables"
    return environment | {"PATH": f"{names}{os.pathsep}{environment['PATH']}", "XTABLES_LIBDIR": str(plugins)}


if __name__ == "__main__":
    sys.exit(go_programs.run_builds([build]))
