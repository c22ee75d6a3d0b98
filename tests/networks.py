"""Network namespaces of a test's own: each broker is a host, and links between hosts can be cut.

    with NamespaceNetwork.create(3) as network:
        network.cut_link("1", "2")  # host 1 no longer reaches host 2; host 2 still reaches host 1
        network.restore_link("1", "2")

The hosts are connected to one bridge; the process that created the network reaches them as the host
`OUTSIDE`. A cut link is a neighbour entry with a hardware address that no host has: frames leave
and no host accepts them, so a connection falls silent instead of being refused, as with a pulled
cable, and no packet filter is needed. Creating namespaces needs root.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.jars import skip_or_fail_in_ci

OUTSIDE = "outside"
UNUSED_MAC = "02:00:00:00:00:fe"  # no host has this hardware address
ADDRESS_RANGE = IPv4Network("198.18.0.0/15")  # RFC 2544: reserved for benchmarks, never routed
NAMESPACE_NAME = re.compile(r"ottla-(\d+)-\d+")  # process id of the creator, host number


@dataclass(frozen=True)
class Host:
    """`namespace` is empty for the outside. `device` is the host's end of its veth pair, or the
    bridge for the outside.
    """

    name: str
    namespace: str
    device: str
    address: str
    mac: str

    def command_on_host(self, *command: str) -> list[str]:
        """A command line that runs `command` on this host (`ip netns exec` replaces its own
        process).
        """
        return ["ip", "netns", "exec", self.namespace, *command] if self.namespace else list(command)


@dataclass
class NamespaceNetwork:
    hosts: dict[str, Host]

    @classmethod
    @contextmanager
    def create(cls, count: int) -> "Iterator[NamespaceNetwork]":
        """Creates hosts `1` … `count` and the outside, and removes them afterwards. Skips the test,
        or fails in CI, without root or `ip`.
        """
        if os.geteuid() != 0 or shutil.which("ip") is None:
            skip_or_fail_in_ci("creating network namespaces needs root and `ip` (Debian: iproute2)")
        remove_orphans()
        network = cls(_plan_hosts(count))
        try:
            network._create_interfaces()
            yield network
        finally:
            for host in network.hosts.values():
                if host.namespace:
                    # If only the namespace were deleted, the kernel would remove its devices later.
                    _run_ignoring_errors("ip", "link", "delete", f"{host.device}p")
                    _run_ignoring_errors("ip", "netns", "delete", host.namespace)
            _run_ignoring_errors("ip", "link", "delete", network.hosts[OUTSIDE].device)

    def cut_link(self, sender: str, receiver: str) -> None:
        """Stops delivering what `sender` sends to `receiver`."""
        self._set_neighbour(sender, receiver, UNUSED_MAC)

    def restore_link(self, sender: str, receiver: str) -> None:
        self._set_neighbour(sender, receiver, self.hosts[receiver].mac)

    def move_host(self, name: str, address: str) -> None:
        """Gives a host another address, and restores the links to it. What is sent to the former
        address still arrives, and is dropped.
        """
        before = self.hosts[name]
        host = self.hosts[name] = replace(before, address=address)
        _run_ip(host, "address", "del", f"{before.address}/24", "dev", host.device)
        _run_ip(host, "address", "add", f"{address}/24", "dev", host.device)
        for other in self.hosts:
            if other != name:
                self.restore_link(other, name)

    def _set_neighbour(self, sender: str, receiver: str, mac: str) -> None:
        source, target = self.hosts[sender], self.hosts[receiver]
        words = ("neigh", "replace", target.address, "lladdr", mac, "dev", source.device, "nud", "permanent")
        _run_ip(source, *words)

    def _create_interfaces(self) -> None:
        outside = self.hosts[OUTSIDE]
        _run("ip", "link", "add", outside.device, "address", outside.mac, "type", "bridge", "stp_state", "0")
        _run("ip", "address", "add", f"{outside.address}/24", "dev", outside.device)
        _run("ip", "link", "set", outside.device, "up")
        for host in self.hosts.values():
            if host.namespace:
                bridge_end = f"{host.device}p"
                _run("ip", "netns", "add", host.namespace)
                _run("ip", "link", "add", bridge_end, "type", "veth", "peer", "name", host.device)
                _run("ip", "link", "set", bridge_end, "master", outside.device, "up")
                _run("ip", "link", "set", host.device, "address", host.mac, "netns", host.namespace)
                _run_ip(host, "address", "add", f"{host.address}/24", "dev", host.device)
                _run_ip(host, "link", "set", "lo", "up")
                _run_ip(host, "link", "set", host.device, "up")
        for one in self.hosts:
            for other in self.hosts:
                if one != other:
                    self.restore_link(one, other)


def remove_orphans() -> None:
    """Removes the namespaces and bridges of test processes that were killed."""
    folder = Path("/run/netns")
    for path in folder.iterdir() if folder.is_dir() else ():
        found = NAMESPACE_NAME.fullmatch(path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _run_ignoring_errors("ip", "netns", "delete", path.name)
            _run_ignoring_errors("ip", "link", "delete", _bridge_name(int(found[1])))


def _plan_hosts(count: int) -> dict[str, Host]:
    me = os.getpid()
    place = _free_subnet()
    hosts = {OUTSIDE: Host(OUTSIDE, "", _bridge_name(me), str(place[254]), "02:00:00:00:00:ff")}
    for number in range(1, count + 1):
        name = f"ottla-{me}-{number}"
        hosts[str(number)] = Host(
            str(number), name, f"o{me:x}n{number}", str(place[number]), f"02:00:00:00:00:{number:02x}"
        )
    return hosts


def _bridge_name(pid: int) -> str:
    return f"o{pid:x}br"


def _free_subnet() -> IPv4Network:
    addresses = [IPv4Address(found) for found in re.findall(r"inet ([\d.]+)", _run("ip", "-4", "address"))]
    subnets = list(ADDRESS_RANGE.subnets(new_prefix=24))
    first = os.getpid() % len(subnets)
    for subnet in subnets[first:] + subnets[:first]:
        if not any(address in subnet for address in addresses):
            return subnet
    raise RuntimeError(f"no free subnet in {ADDRESS_RANGE}")


def _run_ip(host: Host, *words: str) -> None:
    _run("ip", *(("-n", host.namespace) if host.namespace else ()), *words)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _run_ignoring_errors(*command: str) -> None:
    """Runs a command that may fail, because what it removes may not exist."""
    subprocess.run(command, capture_output=True, check=False)
