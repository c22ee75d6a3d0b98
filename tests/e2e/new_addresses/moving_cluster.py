"""Three brokers with names, whose addresses change while the names stay."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from tests.clusters import CONTROLLER_PORT, PORT, ProcessCluster, run_cluster
from tests.e2e.new_addresses.client import PARTITIONS
from tests.networks import NamespaceNetwork

CLIENTS = "4"  # the host of all clients
ADDRESSES_APART = 10  # between two addresses of one host
RESOLVER_FILES = Path("/etc/netns")  # `ip netns exec` shows a process the files of its namespace in /etc


@dataclass
class MovingCluster:
    """`bootstrap`: by names, for clients on the host `CLIENTS`."""

    cluster: ProcessCluster
    network: NamespaceNetwork
    _move_count: int = field(default=0)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{broker_name(number)}:{PORT}" for number in self.cluster.brokers)

    def kill_all(self) -> None:
        processes = [broker.process for broker in self.cluster.brokers.values() if broker.process is not None]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    def start_all(self) -> None:
        """Returns when all brokers know each other and all partitions are in sync."""
        self.cluster.start()

    def move_all(self) -> None:
        """Gives each broker's host another address. Packets to the old one are lost silently."""
        self._move_count += 1
        for number, broker in self.cluster.brokers.items():
            first = IPv4Address(int(IPv4Address(broker.host)) & ~0xFF)
            broker.host = str(first + number + ADDRESSES_APART * (self._move_count % 20))
            self.network.move_host(str(number), broker.host)

    def publish_names(self, *, of_brokers: bool = True) -> None:
        """Makes names resolve to the brokers' present addresses, or, without `of_brokers`, to
        none.
        """
        names = [f"{broker.host} {broker_name(number)}" for number, broker in self.cluster.brokers.items()]
        text = "\n".join(["127.0.0.1 localhost", *(names if of_brokers else ())]) + "\n"
        for host in self.network.hosts.values():
            if host.namespace:
                (RESOLVER_FILES / host.namespace / "hosts").write_text(text)


def broker_name(number: int) -> str:
    return f"broker-{number}.brokers"


@contextmanager
def run_moving_cluster(kind: str, rebalance_delay_ms: int = 0) -> Iterator[MovingCluster]:
    """Runs three brokers of `kind` "ottla" or "kafka". `rebalance_delay_ms`:
    group.initial.rebalance.delay.ms.
    """
    with NamespaceNetwork.create(4) as network:
        folders = [RESOLVER_FILES / host.namespace for host in network.hosts.values() if host.namespace]
        try:
            for folder in folders:
                folder.mkdir(parents=True)
                (folder / "nsswitch.conf").write_text("hosts: files\n")
            with run_cluster(kind, 3, network=network, start=False) as cluster:
                moving = MovingCluster(cluster, network)
                for number, broker in cluster.brokers.items():
                    broker.settings |= named_listeners(kind, number) | {
                        "num.partitions": str(PARTITIONS),
                        "group.initial.rebalance.delay.ms": str(rebalance_delay_ms),
                    }
                moving.publish_names()
                moving.start_all()
                yield moving
        finally:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)


def named_listeners(kind: str, number: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://{broker_name(number)}:{PORT}"
    if kind == "ottla":
        return {"listeners": listeners}
    voters = ",".join(f"{voter}@{broker_name(voter)}:{CONTROLLER_PORT}" for voter in (1, 2, 3))
    return {
        "listeners": f"{listeners},CONTROLLER://{broker_name(number)}:{CONTROLLER_PORT}",
        "controller.quorum.voters": voters,
    }
