"""Several brokers that make one cluster, as processes on this machine; the same way for Ottla and for Apache Kafka.

    with cluster_of("ottla", 3) as cluster:
        cluster.brokers[2].kill()
        eventually(lambda: cluster.healthy([1, 3]))

Kafka runs in KRaft combined mode, three voters. Ports are kept from the moment they are chosen: a socket that is bound and
never listens holds each of them, which neither hinders the broker nor answers for one that was killed.
"""

import asyncio
import json
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
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import KafkaError
from tests.brokers import BrokerProcess, kafka_command, ottla_command, running
from tests.class_archives import READY
from tests.disks import small_disk
from tests.networks import Network
from tests.waiting import eventually

# What keeps tests short, and what three brokers promise.
FOR_CLUSTERS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
FOR_TESTS = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
KAFKA_TOO = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "5",
}
PORT, CONTROLLER_PORT = 9092, 9093  # where every broker has an address of its own
ASKS_WITHIN_S = 3.0


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


def partitions(answer: MetadataResponse) -> PartitionStates:
    return {
        (str(topic.name), int(p.partition_index)): PartitionState(
            int(p.leader_id), int(p.leader_epoch), tuple(map(int, p.replica_nodes)), tuple(map(int, p.isr_nodes))
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def is_in_sync(bootstrap: str, topic: str, replicas: int, *, preferred: bool) -> bool:
    """Whether each partition of a topic has so many replicas, all in sync and, if that is asked, led by the first."""

    async def run() -> MetadataResponse:
        async with Client.connect(bootstrap, timeout_s=ASKS_WITHIN_S) as client:
            return await client.metadata(None)

    try:
        seen = [it for (name, _), it in partitions(asyncio.run(run())).items() if name == topic]
    except (OSError, KafkaError):
        return False
    return bool(seen) and all(
        it.is_fully_in_sync and len(it.replicas) == replicas and (not preferred or it.leader == it.replicas[0])
        for it in seen
    )


@dataclass
class ProcessCluster:
    """`brokers`: by node id, 1 … n. `register`: Ottla's; None for Kafka. `network`: None on loopback."""

    kind: str
    brokers: dict[int, BrokerProcess]
    folder: Path
    register: Path | None = None
    network: Network | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def running_ids(self) -> list[int]:
        return [number for number, broker in self.brokers.items() if broker.is_running]

    def start(self) -> None:
        """All at once; returns when each has said that it serves, and all of them know each other."""
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        eventually(lambda: self.is_healthy(), within_s=60, message="all brokers know each other")

    # --- what clients are told

    def call_broker(self, broker: int, question: Callable[[Client], Any], within_s: float = ASKS_WITHIN_S) -> Any:
        """What `question` (a coroutine function) learns from this broker alone. OSError, TimeoutError, KafkaError."""

        async def run() -> Any:
            async with Client.connect(self.brokers[broker].bootstrap, timeout_s=within_s) as client:
                return await question(client)

        return asyncio.run(run())

    def metadata(self, broker: int) -> MetadataResponse:
        found: MetadataResponse = self.call_broker(broker, lambda client: client.metadata(None))
        return found

    def partition_states(self, broker: int) -> PartitionStates:
        """Every partition as this broker sees it."""
        return partitions(self.metadata(broker))

    def partition_state(self, topic: str, partition: int = 0) -> PartitionState:
        """As the first broker that answers sees it."""
        for number in self.running_ids:
            try:
                return self.partition_states(number)[topic, partition]
            except (OSError, KafkaError, KeyError):
                continue
        raise LookupError(f"no broker tells of {topic}-{partition}")

    def is_healthy(self, of: Sequence[int] = ()) -> bool:
        """Every broker of `of` (all) answers, knows all of them, and sees all partitions in sync on all their replicas."""
        return not self.health_problems(of)

    def health_problems(self, of: Sequence[int] = (), asked: Sequence[int] = ()) -> list[str]:
        """Why it is not healthy, in words; stops at the first broker, of `asked` (`of`), that has something to tell."""
        wanted = list(of) or list(self.brokers)
        topics: dict[int, int] = {}
        for number in asked or wanted:
            try:
                answer = self.metadata(number)
            except (OSError, KafkaError) as reason:
                return [f"broker {number}: {type(reason).__name__}: {reason}"]
            known = {int(broker.node_id) for broker in answer.brokers}
            found = [f"broker {number} knows brokers {sorted(known)}"] if not known >= set(wanted) else []
            for topic in answer.topics:
                for p in topic.partitions:
                    in_sync = {int(node) for node in p.isr_nodes}
                    if int(p.leader_id) not in in_sync or in_sync < {int(node) for node in p.replica_nodes} & set(
                        wanted
                    ):
                        where = f"{topic.name}-{p.partition_index} led by {p.leader_id}"
                        found.append(f"broker {number} sees {where} in epoch {p.leader_epoch}, ISR {sorted(in_sync)}")
            if found:
                return found
            topics[number] = len(answer.topics)
        return [f"numbers of topics by broker: {topics}"] if len(set(topics.values())) > 1 else []

    def controller_id(self) -> int:
        """The active controller's id. LookupError when nobody says."""
        if self.register is not None:
            return int(json.loads(self.register.read_text())["leader"])
        topic = TopicData(
            topic_name=TopicName("__cluster_metadata"), partitions=(PartitionData(partition_index=i32(0)),)
        )
        for number in self.running_ids:
            try:
                answer = self.call_broker(number, lambda client: client.send(DescribeQuorumRequest(topics=(topic,))))
            except (OSError, KafkaError):
                continue
            if (leader := int(answer.topics[0].partitions[0].leader_id)) > 0:
                return leader
        raise LookupError("no broker tells who is the controller")


@contextmanager
def run_cluster(
    kind: str,
    count: int = 3,
    *,
    folder: Path | None = None,
    network: Network | None = None,
    disk_mebibytes: int = 0,
    start: bool = True,
    test_settings: bool = True,
    jvm: Sequence[str] = (),
    **settings: object,
) -> Iterator[ProcessCluster]:
    """`kind`: "ottla" or "kafka". `folder`: kept when given. `disk_mebibytes`: the size of a disk of each broker's own (0:
    none). `settings`: of each broker, with `_` for `.`. `test_settings=False`: only what three brokers promise. `jvm`: Kafka's, see `kafka_command`."""
    place = folder or Path(tempfile.mkdtemp(prefix=f"ottla-test-{kind}s-"))
    base = FOR_CLUSTERS | (FOR_TESTS if test_settings else {}) | (KAFKA_TOO if kind == "kafka" else {})
    base |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    numbers = range(1, count + 1)
    with ExitStack() as stack:
        if folder is None:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        hosts = {n: network.hosts[str(n)].address if network else "127.0.0.1" for n in numbers}
        ports = {n: PORT if network else stack.enter_context(kept_port()) for n in numbers}
        controllers = {n: CONTROLLER_PORT if network else stack.enter_context(kept_port()) for n in numbers}
        cluster = ProcessCluster(kind, {}, place, place / "register.json" if kind == "ottla" else None, network)
        for n in numbers:
            home = place / str(n)
            home.mkdir(parents=True, exist_ok=True)
            if disk_mebibytes:
                stack.enter_context(small_disk(home / "data", disk_mebibytes))
            own = base | {"node.id": str(n)}
            if kind == "ottla":
                own["register"] = f"file:{cluster.register}"
                command, mark = ottla_command, " ready on "
            else:
                own |= {
                    "listeners": f"PLAINTEXT://{hosts[n]}:{ports[n]},CONTROLLER://{hosts[n]}:{controllers[n]}",
                    "controller.quorum.voters": ",".join(f"{m}@{hosts[m]}:{controllers[m]}" for m in numbers),
                }
                command, mark = partial(kafka_command, jvm=jvm), READY
            broker = BrokerProcess(kind, ports[n], home / "data", home, own, command, mark, hosts[n])
            broker.log_dir.mkdir(exist_ok=True)
            if network:
                broker.namespace = network.hosts[str(n)].namespace
            cluster.brokers[n] = broker
            running.append(broker)
            stack.callback(running.remove, broker)
            stack.callback(broker.kill)
        if start:
            cluster.start()
        yield cluster


@contextmanager
def kept_port() -> Iterator[int]:
    """A port of loopback that nobody else is given as long as this lasts."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
