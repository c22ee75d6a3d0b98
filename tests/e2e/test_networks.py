"""Network namespaces of the fault tests: a cut link drops packets of one direction, and can be
restored.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.networks import OUTSIDE, Host, NamespaceNetwork
from tests.waiting import eventually

SENDER = """
import socket, time
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(10**6):
    to.sendto(b"%d", ("{address}", 5000))
    time.sleep(0.01)
"""


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    with NamespaceNetwork.create(2) as network:
        yield network


@pytest.fixture
def receiver(network: NamespaceNetwork) -> Iterator[socket.socket]:
    """Socket outside of the hosts, to which host 1 sends a datagram every 10 ms."""
    outside = network.hosts[OUTSIDE]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((outside.address, 5000))
        receiver.settimeout(0.5)
        sender = start_on_host(network.hosts["1"], SENDER.format(address=outside.address))
        try:
            yield receiver
        finally:
            sender.kill()
            sender.wait()


def start_on_host(host: Host, program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(host.command_on_host(sys.executable, "-c", program))


def receives(receiver: socket.socket) -> bool:
    try:
        receiver.recv(100)
    except TimeoutError:
        return False
    return True


def drain(receiver: socket.socket) -> None:
    receiver.setblocking(False)
    try:
        while receiver.recv(100):
            pass
    except BlockingIOError:
        receiver.settimeout(0.5)


def test_cut_link_drops_packets_until_it_is_restored(network: NamespaceNetwork, receiver: socket.socket) -> None:
    eventually(lambda: receives(receiver), message="hosts reach each other")
    network.cut_link("1", OUTSIDE)
    drain(receiver)
    assert not receives(receiver)
    network.restore_link("1", OUTSIDE)
    eventually(lambda: receives(receiver), message="a restored link")


def test_cut_affects_one_direction_between_two_hosts(network: NamespaceNetwork, receiver: socket.socket) -> None:
    eventually(lambda: receives(receiver), message="hosts reach each other")
    network.cut_link(OUTSIDE, "1")
    network.cut_link("1", "2")
    drain(receiver)
    eventually(lambda: receives(receiver), message="packets of the other direction")
    with pytest.raises(TimeoutError):  # not even a refusal arrives
        socket.create_connection((network.hosts["1"].address, 5001), timeout=0.5)
    network.restore_link(OUTSIDE, "1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((network.hosts["1"].address, 5001), timeout=5)


def test_network_removes_its_namespaces_and_links() -> None:
    with NamespaceNetwork.create(2) as network:
        names = [host.namespace for host in network.hosts.values() if host.namespace]
        assert all((Path("/run/netns") / name).exists() for name in names)
    assert not any((Path("/run/netns") / name).exists() for name in names)
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert network.hosts[OUTSIDE].device not in links
