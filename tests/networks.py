"""Network namespaces of a test's own: every broker is a host with an address, and what flows between hosts can be cut.

    with Network.of(3) as network:
        network.cut("1", "2")                 # nothing goes from host 1 to host 2 any more; 2 → 1 still does
        network.mend("1", "2")

Hosts hang on one bridge; the process that made the network reaches them as the host `OUTSIDE`. A cut is a neighbour entry with
a hardware address that nobody has: frames leave and nobody takes them, so a connection falls silent instead of being
refused, as with a pulled cable, and no packet filter is needed. Only root may make namespaces.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.jars import unavailable

OUTSIDE = "outside"
NOBODY = "02:00:00:00:00:fe"  # a hardware address that no host has
RANGE = IPv4Network("198.18.0.0/15")  # RFC 2544: for measurements between hosts, and never routed
NAME = re.compile(r"ottla-(\d+)-\d+")  # a namespace: the process that made it, the host's number


@dataclass(frozen=True)
class Host:
    """`namespace`: empty for the outside. `device`: its end of the cable."""

    name: str
    namespace: str
    device: str
    address: str
    hardware: str

    def inside(self, *command: str) -> list[str]:
        """A command line that runs `command` on this host, in the same process."""
        return ["ip", "netns", "exec", self.namespace, *command] if self.namespace else list(command)


@dataclass
class Network:
    hosts: dict[str, Host]
    _cuts: dict[tuple[str, str], None] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def of(cls, count: int) -> "Iterator[Network]":
        """Hosts `1` … `count` and the outside; everything is removed afterwards. Without root: see `unavailable`."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            unavailable("only root may make network namespaces, with `ip` (Debian: iproute2)")
        remove_orphans()
        network = cls(_hosts(count))
        try:
            network._build()
            yield network
        finally:
            for host in network.hosts.values():
                if host.namespace:
                    _try("ip", "link", "delete", f"{host.device}p")  # a namespace's own devices go some time after it
                    _try("ip", "netns", "delete", host.namespace)
            _try("ip", "link", "delete", network.hosts[OUTSIDE].device)

    def cut(self, sender: str, receiver: str) -> None:
        """From now on nothing arrives that `sender` sends to `receiver`."""
        self._cuts[sender, receiver] = None
        self._neighbour(sender, receiver, NOBODY)

    def mend(self, sender: str, receiver: str) -> None:
        self._cuts.pop((sender, receiver), None)
        self._neighbour(sender, receiver, self.hosts[receiver].hardware)

    def mend_all(self) -> None:
        for sender, receiver in tuple(self._cuts):
            self.mend(sender, receiver)

    def _neighbour(self, sender: str, receiver: str, hardware: str) -> None:
        here, there = self.hosts[sender], self.hosts[receiver]
        words = ("neigh", "replace", there.address, "lladdr", hardware, "dev", here.device, "nud", "permanent")
        _ip(here, *words)

    def _build(self) -> None:
        outside = self.hosts[OUTSIDE]
        _run("ip", "link", "add", outside.device, "address", outside.hardware, "type", "bridge", "stp_state", "0")
        _run("ip", "address", "add", f"{outside.address}/24", "dev", outside.device)
        _run("ip", "link", "set", outside.device, "up")
        for host in self.hosts.values():
            if host.namespace:
                plug = f"{host.device}p"
                _run("ip", "netns", "add", host.namespace)
                _run("ip", "link", "add", plug, "type", "veth", "peer", "name", host.device)
                _run("ip", "link", "set", plug, "master", outside.device, "up")
                _run("ip", "link", "set", host.device, "address", host.hardware, "netns", host.namespace)
                _ip(host, "address", "add", f"{host.address}/24", "dev", host.device)
                _ip(host, "link", "set", "lo", "up")
                _ip(host, "link", "set", host.device, "up")
        for one in self.hosts:
            for other in self.hosts:
                if one != other:
                    self.mend(one, other)


def remove_orphans() -> None:
    """What a test that was killed has left behind."""
    folder = Path("/run/netns")
    for path in folder.iterdir() if folder.is_dir() else ():
        found = NAME.fullmatch(path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _try("ip", "netns", "delete", path.name)
            _try("ip", "link", "delete", _bridge(int(found[1])))


def _hosts(count: int) -> dict[str, Host]:
    me = os.getpid()
    place = _free_subnet()
    hosts = {OUTSIDE: Host(OUTSIDE, "", _bridge(me), str(place[254]), "02:00:00:00:00:ff")}
    for number in range(1, count + 1):
        name = f"ottla-{me}-{number}"
        hosts[str(number)] = Host(
            str(number), name, f"o{me:x}n{number}", str(place[number]), f"02:00:00:00:00:{number:02x}"
        )
    return hosts


def _bridge(pid: int) -> str:
    return f"o{pid:x}br"


def _free_subnet() -> IPv4Network:
    addresses = [IPv4Address(found) for found in re.findall(r"inet ([\d.]+)", _run("ip", "-4", "address"))]
    subnets = list(RANGE.subnets(new_prefix=24))
    first = os.getpid() % len(subnets)
    for subnet in subnets[first:] + subnets[:first]:
        if not any(address in subnet for address in addresses):
            return subnet
    raise RuntimeError(f"no free subnet in {RANGE}")


def _ip(host: Host, *words: str) -> None:
    _run("ip", *(("-n", host.namespace) if host.namespace else ()), *words)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _try(*command: str) -> None:
    """Where what should be removed may not have come to be."""
    subprocess.run(command, capture_output=True, check=False)
