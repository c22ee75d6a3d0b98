"""A cluster of broker processes on this machine, of Ottla or of Apache Kafka.

    with run_cluster("ottla", 3) as cluster:
        cluster.brokers[2].kill()
        cluster.wait_until_healthy([1, 3])

Kafka runs in KRaft combined mode, and each of its brokers is a voter. Each port is reserved from
the moment it is chosen: a bound socket that never listens keeps others from getting it, without
hindering the broker and without accepting connections while the broker is down.
"""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import PartitionData as QuorumState
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from ottla_broker.wire.client import Client
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.brokers import BrokerProcess, kafka_command, ottla_command, started_brokers
from tests.class_archives import KAFKA_READY_LINE
from tests.disks import mount_small_disk
from tests.networks import NamespaceNetwork
from tests.waiting import eventually

# Replication in a cluster of three brokers.
CLUSTER_SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
# Settings that shorten tests.
TEST_SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
KAFKA_TRANSACTION_SETTINGS = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "5",
}
PORT, CONTROLLER_PORT = 9092, 9093  # where every broker has its own address
CALL_TIMEOUT_S = 3.0
GROUP_KEY, TRANSACTION_KEY = 0, 1  # of FindCoordinator


@dataclass(frozen=True)
class PartitionState:
    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_fully_in_sync(self) -> bool:
        return self.leader in self.isr and sorted(self.isr) == sorted(self.replicas)


PartitionStates = dict[tuple[str, int], PartitionState]


def partition_states_of(answer: MetadataResponse) -> PartitionStates:
    return {
        (str(topic.name), int(p.partition_index)): PartitionState(
            int(p.leader_id), int(p.leader_epoch), tuple(map(int, p.replica_nodes)), tuple(map(int, p.isr_nodes))
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def is_in_sync(bootstrap: str, topic: str, replica_count: int, *, preferred: bool) -> bool:
    """True if all partitions of a topic have this many replicas, all in sync, and, if `preferred`,
    their preferred leader. False if there is no such topic, or if the broker does not respond.
    """

    async def run() -> MetadataResponse:
        async with Client.connect(bootstrap, timeout_s=CALL_TIMEOUT_S) as client:
            return await client.metadata(None)

    try:
        seen = [it for (name, _), it in partition_states_of(asyncio.run(run())).items() if name == topic]
    except (OSError, KafkaError):
        return False
    return bool(seen) and all(
        it.is_fully_in_sync and len(it.replicas) == replica_count and (not preferred or it.leader == it.replicas[0])
        for it in seen
    )


@dataclass
class ProcessCluster:
    """`brokers` by node id from 1. `network` is None on loopback. `security`: TLS and login of the
    connections by which the cluster is observed.
    """

    kind: str
    brokers: dict[int, BrokerProcess]
    folder: Path
    network: NamespaceNetwork | None = None
    security: ClientSecurity = UNSECURED

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running_ids(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.is_running]

    def start(self) -> None:
        """Starts all brokers. Returns when the cluster is healthy and the quorum has at least
        three voters, or one if there are fewer than three brokers.
        """
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        self.wait_until_healthy()
        voters = 3 if len(self.brokers) >= 3 else 1
        eventually(lambda: len(self.describe_quorum().current_voters) >= voters, message=f"{voters} voters")

    # --- what clients see

    def call_broker(self, node_id: int, call: Callable[[Client], Any]) -> Any:
        """Runs a coroutine function with a client of this broker alone. Raises OSError,
        TimeoutError or KafkaError.
        """

        async def run() -> Any:
            address = self.brokers[node_id].bootstrap
            async with Client.connect(address, timeout_s=CALL_TIMEOUT_S, security=self.security) as client:
                return await call(client)

        return asyncio.run(run())

    def metadata(self, node_id: int) -> MetadataResponse:
        found: MetadataResponse = self.call_broker(node_id, lambda client: client.metadata(None))
        return found

    def partition_states(self, node_id: int) -> PartitionStates:
        """All partitions, according to this broker's metadata."""
        return partition_states_of(self.metadata(node_id))

    def partition_state(self, topic: str, partition: int = 0) -> PartitionState:
        """One partition, according to the first broker that knows it. Raises LookupError."""
        for number in self.running_ids:
            try:
                return self.partition_states(number)[topic, partition]
            except (OSError, KafkaError, KeyError):
                continue
        raise LookupError(f"no broker has metadata of {topic}-{partition}")

    def is_healthy(self, members: Sequence[int] = ()) -> bool:
        """True if each of `members` (default: all) responds, knows the others and as many topics as
        they do, and sees each partition led by an in-sync replica, with all its replicas on
        `members` in sync.
        """
        return not self.health_problems(members)

    def wait_until_healthy(self, members: Sequence[int] = (), *, within_s: float = 60.0) -> None:
        """Raises AssertionError with the problems if the cluster is unhealthy for `within_s`."""
        eventually(
            lambda: self.is_healthy(members),
            within_s=within_s,
            message=lambda: f"a healthy cluster: {'; '.join(self.health_problems(members))}",
        )

    def health_problems(self, members: Sequence[int] = (), observers: Sequence[int] = ()) -> list[str]:
        """The reasons why the cluster is not healthy, according to the first broker of `observers`
        (default: `members`) with a problem.
        """
        expected = list(members) or list(self.brokers)
        topics: dict[int, int] = {}
        for number in observers or expected:
            try:
                answer = self.metadata(number)
            except (OSError, KafkaError) as reason:
                return [f"broker {number}: {type(reason).__name__}: {reason}"]
            known = {int(broker.node_id) for broker in answer.brokers}
            found = [f"broker {number} knows brokers {sorted(known)}"] if not known >= set(expected) else []
            for topic in answer.topics:
                for p in topic.partitions:
                    in_sync = {int(node) for node in p.isr_nodes}
                    if int(p.leader_id) not in in_sync or in_sync < {int(node) for node in p.replica_nodes} & set(
                        expected
                    ):
                        where = f"{topic.name}-{p.partition_index} led by {p.leader_id}"
                        found.append(f"broker {number} sees {where} in epoch {p.leader_epoch}, ISR {sorted(in_sync)}")
            if found:
                return found
            topics[number] = len(answer.topics)
        return [f"brokers know different numbers of topics: {topics}"] if len(set(topics.values())) > 1 else []

    def controller_id(self) -> int:
        """The active controller's node id. Raises LookupError if no broker knows it."""
        return int(self.describe_quorum().leader_id)

    def find_coordinator(self, key: str, key_type: int = GROUP_KEY) -> int:
        """The node id of the coordinator of a group, or of a transactional id. Waits until a broker
        knows it.
        """
        request = FindCoordinatorRequest(key_type=i8(key_type), coordinator_keys=(key,))

        def ask_each_broker() -> int:
            for number in self.running_ids:
                try:
                    (found,) = self.call_broker(number, lambda client: client.send(request)).coordinators
                except (OSError, KafkaError):
                    continue
                if found.error_code is ErrorCode.none:
                    return int(found.node_id)
            return 0

        return eventually(ask_each_broker, message=f"a coordinator of {key}")

    def describe_quorum(self) -> QuorumState:
        """The quorum of the metadata log, as its leader describes it. Raises LookupError without
        one.
        """
        topic = TopicData(
            topic_name=TopicName("__cluster_metadata"), partitions=(PartitionData(partition_index=i32(0)),)
        )
        for number in self.running_ids:
            try:
                answer = self.call_broker(number, lambda client: client.send(DescribeQuorumRequest(topics=(topic,))))
            except (OSError, KafkaError):
                continue
            if answer.error_code is ErrorCode.none and answer.topics[0].partitions[0].leader_id > 0:
                found: QuorumState = answer.topics[0].partitions[0]
                return found
        raise LookupError("no broker knows the controller")


@contextmanager
def run_cluster(
    kind: str,
    count: int = 3,
    *,
    folder: Path | None = None,
    network: NamespaceNetwork | None = None,
    disk_mebibytes: int = 0,
    start: bool = True,
    test_settings: bool = True,
    jvm: Sequence[str] = (),
    **settings: object,
) -> Iterator[ProcessCluster]:
    """Runs a cluster of `kind` "ottla" or "kafka".

    A given `folder` is not removed. `disk_mebibytes` is the size of each broker's own disk (0:
    none). `settings` go to each broker, with `_` in place of `.`. `test_settings=False` leaves out
    the settings that shorten tests. `jvm`: see `kafka_command`.
    """
    cluster_folder = folder or Path(tempfile.mkdtemp(prefix=f"ottla-test-{kind}s-"))
    base = (
        CLUSTER_SETTINGS
        | (TEST_SETTINGS if test_settings else {})
        | (KAFKA_TRANSACTION_SETTINGS if kind == "kafka" else {})
    )
    base |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    numbers = range(1, count + 1)
    with ExitStack() as stack:
        if folder is None:
            stack.callback(shutil.rmtree, cluster_folder, ignore_errors=True)
        hosts = {n: network.hosts[str(n)].address if network else "127.0.0.1" for n in numbers}
        ports = {n: PORT if network else stack.enter_context(reserved_port()) for n in numbers}
        controllers = {n: CONTROLLER_PORT if network else stack.enter_context(reserved_port()) for n in numbers}
        cluster = ProcessCluster(kind, {}, cluster_folder, network)
        for n in numbers:
            home = cluster_folder / str(n)
            home.mkdir(parents=True, exist_ok=True)
            if disk_mebibytes:
                stack.enter_context(mount_small_disk(home / "data", disk_mebibytes))
            broker_settings = base | {"node.id": str(n)}
            if kind == "ottla":
                if count > 1:
                    servers = ",".join(f"{hosts[m]}:{ports[m]}" for m in numbers)
                    broker_settings["controller.quorum.bootstrap.servers"] = servers
                    broker_settings["cluster.found"] = str(n == 1).lower()
                command, ready_line = ottla_command, " ready on "
            else:
                broker_settings |= {
                    "listeners": f"PLAINTEXT://{hosts[n]}:{ports[n]},CONTROLLER://{hosts[n]}:{controllers[n]}",
                    "controller.quorum.voters": ",".join(f"{m}@{hosts[m]}:{controllers[m]}" for m in numbers),
                }
                command, ready_line = partial(kafka_command, jvm=jvm), KAFKA_READY_LINE
            broker = BrokerProcess(kind, ports[n], home / "data", home, broker_settings, command, ready_line, hosts[n])
            broker.log_dir.mkdir(exist_ok=True)
            if network:
                broker.namespace = network.hosts[str(n)].namespace
            cluster.brokers[n] = broker
            started_brokers.append(broker)
            stack.callback(started_brokers.remove, broker)
            stack.callback(broker.kill)
        if start:
            cluster.start()
        yield cluster


@contextmanager
def reserved_port() -> Iterator[int]:
    """A loopback port that the system gives to no other process inside the block."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
