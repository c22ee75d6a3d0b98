"""Brokers that replicate partitions over a simulated network. The test plays the controller: it
sets the metadata of partitions, sends it to all brokers at once or only to some, and accepts or
rejects the ISRs that leaders propose.
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, cast
from uuid import UUID

import msgspec
from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition.v3.response import AlterPartitionResponse, PartitionData, TopicData
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from ottla_broker.broker import Broker
from ottla_broker.config import Config
from ottla_broker.metadata.controller_channel import ControllerChannel
from ottla_broker.metadata.image import TOPIC_RESOURCE, BrokerRegistration, MetadataDelta, MetadataImage, TopicImage
from ottla_broker.metadata.records import Endpoint, PartitionRecord
from ottla_broker.replication.alter_partition_sender import AlterPartitionSender
from ottla_broker.replication.cluster_view import MetadataClusterView
from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.replication.replica_fetchers import ReplicaFetchers
from ottla_broker.replication.replica_manager import ReplicaManager
from ottla_broker.replication.replica_mover import ReplicaMover
from ottla_broker.requests.durations import NO_THROTTLE
from ottla_broker.runtime import Runtime
from ottla_broker.security.audit import BrokerLogAudit
from ottla_broker.security.authorizer import AllowAll
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.server import Server
from ottla_broker.wire.channel_builder import ChannelBuilder
from ottla_broker.wire.records import Record, encode_batch, iter_records
from tests.log_dirs import open_log_dir
from tests.sim.disk import SimulatedDisk, SimulatedExecutor
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import NO_PROCESS, SimulatedLoop, SimulatedProcess

PORT = 9092
TOPIC = "t"
TOPIC_ID = UUID(int=77)
LISTENER = "PLAINTEXT"


class Node:
    """The parts of a broker that replicate. Its broker epoch is 10 × id + number of the
    incarnation.
    """

    def __init__(self, cluster: "SmallCluster", node_id: int) -> None:
        self.node_id = node_id
        self.host = f"broker-{node_id}"
        self.cluster = cluster
        self.disk = SimulatedDisk(Random(node_id), cluster.loop.time, cluster.now_ms)
        self.disk.mount("/data")
        self.incarnation = 0
        self.leadership_changes: list[tuple[str, int]] = []  # ("gained" or "lost", leader epoch)
        self.process: SimulatedProcess

    is_active_controller = False

    def controller_endpoint(self) -> None:
        return None

    @property
    def epoch(self) -> int:
        return 10 * self.node_id + self.incarnation

    def start(self) -> None:
        self.incarnation += 1
        self.process = SimulatedProcess(self.cluster.loop, self.host, self.incarnation)
        self.process.on_exit.append(self.disk.release_locks)
        self.process.run(self._serve())

    async def _serve(self) -> None:
        """Starts the parts of the broker, with the files that earlier incarnations have left."""
        cluster = self.cluster
        settings = {"node.id": str(self.node_id), "listeners": f"{LISTENER}://{self.host}:{PORT}", "log.dirs": "/data"}
        self.config = Config.of(settings | cluster.settings)
        self.runtime = Runtime(now_ms=cluster.now_ms, random=Random(self.epoch), executor=SimulatedExecutor(self.disk))
        self.cluster_id = "a-cluster"
        self.controller = None
        self.controller_channel = ControllerChannel(self, self.host)
        self.image = MetadataImage()
        self.partitions = Partitions(self.image)
        self.channels = ChannelBuilder()
        self.audit_log = BrokerLogAudit(cluster.loop.time)
        self.client_quotas = ClientQuotaManager(QuotaWindows(), cluster.loop.time)
        self.authorizer = AllowAll()
        self.ready = True
        self.started = asyncio.Event()
        self.started.set()
        self.directories = [
            open_log_dir(
                "/data",
                disk=self.disk,
                runtime=self.runtime,
                node_id=self.node_id,
                config_of=lambda _: self.config.log_config({}),
            )
        ]
        self.proposals = AlterPartitionSender(
            self.node_id, lambda: self.epoch, lambda broker: self.image.brokers[broker].epoch, cluster.send
        )
        self.fetchers = ReplicaFetchers(self.node_id, self.image, self.config, lambda: self.epoch)
        self.replica_manager = ReplicaManager(
            self.node_id,
            self.image,
            self.partitions,
            self.directories,
            self.runtime,
            self.config,
            self.fetchers,
            ReplicaMover(
                self.node_id, self.partitions, self.directories, self.config, lambda: self.epoch, cluster.send
            ),
            MetadataClusterView(self.image),
            self.proposals.send,
            lambda partition: self.leadership_changes.append(("gained", partition.leader_epoch)),
            lambda partition: self.leadership_changes.append(("lost", partition.leader_epoch)),
        )
        self.server = Server(
            cast(Broker, self),
            listen_on=lambda at, _: cluster.network.listen(at.host, at.port),  # type: ignore[arg-type,return-value]
        )
        self.server.bind()
        await self.server.serve()
        cluster.on_registered(self)

    def apply_records(self, records: Iterable[PartitionRecord]) -> None:
        """Applies records of the metadata log, in the context of the broker's process."""

        def apply() -> None:
            changes = MetadataDelta()
            for record in records:
                topic = self.image.topics.get(TOPIC)
                if topic is not None and topic.id != record.topic:
                    del self.image.topic_names[topic.id]
                    changes.deleted_topics.append(self.image.topics.pop(TOPIC))
                    topic = None
                if topic is None:
                    topic = self.image.topics[TOPIC] = TopicImage(TOPIC, record.topic)
                    self.image.topic_names[record.topic] = TOPIC
                    self.image.configs[TOPIC_RESOURCE, TOPIC] = dict(self.cluster.topic_config)
                topic.partitions[record.partition] = record
                changes.changed_partitions.add((TOPIC, record.partition))
            self.replica_manager.apply_changes(changes)

        if self.process.alive:
            self.process.context.copy().run(apply)

    def apply_brokers(self, brokers: dict[int, BrokerRegistration]) -> None:
        def apply() -> None:
            self.image.brokers = dict(brokers)
            self.replica_manager.apply_changes(MetadataDelta(changed_brokers=set(brokers)))

        if self.process.alive:
            self.process.context.copy().run(apply)

    def partition(self, index: int = 0) -> Partition:
        partition = self.partitions.get(TOPIC, index)
        assert partition is not None
        return partition

    def values(self) -> list[bytes | None]:
        """Values of all records that the replica has."""
        log = self.partition().log
        values: list[bytes | None] = []
        offset = log.start
        while offset < log.end:
            for header, record in iter_records(log.read(offset, 1 << 20, up_to=log.end)):
                values.append(record.value)
                offset = header.next_offset
        return values

    def append(self, *values: bytes, index: int = 0, acks: int = -1, **options: Any) -> "asyncio.Task[int]":
        """Produces a batch. The task returns the first offset when it is acknowledged, or raises
        KafkaError.
        """

        async def produce() -> int:
            partition = self.partitions.leader(TOPIC, index)
            batch = encode_batch([Record(1, None, value) for value in values], **options)
            appended = partition.append_records(batch, acks=acks)
            if acks == ALL_REPLICAS and (waiting := partition.commit_future(appended)) is not None:
                await waiting
            return appended.first_offset

        return self.process.run(produce())

    def kill(self) -> None:
        """Kills the process. The broker is fenced at once, as its port refuses connections."""
        self.process.kill()
        self.cluster.fence(self)

    def lose_power(self) -> None:
        self.cluster.network.lose_power(self.host)
        self.kill()
        self.disk.lose_power()
        self.cluster.network.power_on(self.host)


class SmallCluster:
    """Brokers 1 to `count`, and the controller. `state`: the controller's record of each partition.
    `controller_is_silent`: it does not respond. `reject_with`: its error for every proposal.
    """

    def __init__(
        self, loop: SimulatedLoop, count: int = 3, topic_config: dict[str, str] | None = None, **settings: str
    ) -> None:
        self.loop = loop
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.topic_config = topic_config or {}
        self.network = SimulatedNetwork(loop, Random(5))
        self.nodes = {node_id: Node(self, node_id) for node_id in range(1, count + 1)}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.state: dict[int, PartitionRecord] = {}
        self._cuts: list[tuple[str, str]] = []
        self.topic_id = TOPIC_ID
        self.throttle_config = ""  # set and read by tests
        self.controller_is_silent = False
        self.without_metadata: set[int] = set()  # brokers that do not get new metadata
        self.reject_with: ErrorCode | None = None
        self.requests: list[AlterPartitionRequest] = []
        self.isrs: list[tuple[int, ...]] = []  # accepted proposals of all partitions

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def now_ms(self) -> int:
        return 1_750_000_000_000 + int(self.loop.time() * 1000)

    async def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        await self.wait_until(lambda: len(self.brokers) == len(self.nodes))

    async def restart(self, node_id: int) -> None:
        node = self.nodes[node_id]
        before = node.epoch
        node.start()
        await self.wait_until(lambda: self.brokers[node_id].epoch > before)

    def fence(self, node: Node) -> None:
        self.brokers[node.node_id] = replace(self.brokers[node.node_id], fenced=True)
        for other in self.nodes.values():
            other.apply_brokers(self.brokers)

    def on_registered(self, node: Node) -> None:
        """The controller registers a broker that has started, and all brokers learn of it."""
        endpoints = {LISTENER: Endpoint(node.host, PORT)}
        incarnation = UUID(int=node.epoch)
        self.brokers[node.node_id] = BrokerRegistration(
            node.node_id, node.epoch, incarnation, endpoints, f"rack-{node.node_id}", (), fenced=False
        )
        for other in self.nodes.values():
            if other.node_id in self.brokers:
                other.apply_brokers(self.brokers)
        node.apply_records(self.state.values())

    def set_partition(self, index: int = 0, **change: Any) -> None:
        """Creates or changes a partition. A change of the leader increments the leader epoch."""
        old = self.state.get(index)
        if old is None:
            replicas = tuple(change.pop("replicas", self.nodes))
            new = PartitionRecord(
                self.topic_id, index, **({"replicas": replicas, "isr": replicas, "leader": replicas[0]} | change)
            )
        else:
            if "leader" in change:
                change.setdefault("leader_epoch", old.leader_epoch + 1)
            new = msgspec.structs.replace(old, partition_epoch=old.partition_epoch + 1, **change)
        self.state[index] = new
        for node_id in self.brokers:
            if node_id not in self.without_metadata:
                self.nodes[node_id].apply_records([new])

    def recreate_topic(self) -> None:
        """Deletes the topic and creates it again with the same partitions."""
        self.topic_id = UUID(int=self.topic_id.int + 1)
        replicas = {index: state.replicas for index, state in self.state.items()}
        self.state.clear()
        for index, members in replicas.items():
            self.set_partition(index, replicas=members)

    def send_metadata(self, node_id: int) -> None:
        """Ends `without_metadata` for this broker, and sends all records."""
        self.without_metadata.discard(node_id)
        self.nodes[node_id].apply_records(self.state.values())

    async def send(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """The controller answers an AlterPartition request, once it is not silent."""
        self.requests.append(request)
        await asyncio.sleep(0.001)
        await self.wait_until(lambda: not self.controller_is_silent)
        return AlterPartitionResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            topics=tuple(
                TopicData(
                    topic_id=topic.topic_id,
                    partitions=tuple(self._decide(request.broker_id, it) for it in topic.partitions),
                )
                for topic in request.topics
            ),
        )

    def _decide(self, leader: int, proposal: Any) -> PartitionData:
        state = self.state[proposal.partition_index]
        code = ErrorCode.none
        epochs = {it.broker_id: it.broker_epoch for it in proposal.new_isr_with_epochs}
        if self.reject_with is not None:
            code = self.reject_with
        elif proposal.leader_epoch < state.leader_epoch or leader != state.leader:
            code = ErrorCode.fenced_leader_epoch
        elif proposal.partition_epoch < state.partition_epoch:
            code = ErrorCode.invalid_update_version
        elif any(self.brokers[broker].epoch != epoch for broker, epoch in epochs.items()):
            code = ErrorCode.ineligible_replica
        if code is ErrorCode.none:
            isr = tuple(epochs)
            self.isrs.append(isr)
            self.loop.call_soon(lambda: self.set_partition(proposal.partition_index, isr=isr), context=NO_PROCESS)
        return PartitionData(
            partition_index=proposal.partition_index,
            error_code=code,
            leader_id=cast(Any, state.leader),
            leader_epoch=cast(Any, state.leader_epoch),
            isr=cast(Any, state.isr),
            partition_epoch=cast(Any, state.partition_epoch + (code is ErrorCode.none)),
        )

    def cut_link(self, source: int, target: int) -> None:
        """Drops all packets in this direction."""
        self._cuts.append((self.nodes[source].host, self.nodes[target].host))
        self.network.cut_link(*self._cuts[-1])

    def restore_links(self) -> None:
        while self._cuts:
            self.network.restore_link(*self._cuts.pop())

    async def wait_until(self, condition: Callable[[], bool]) -> float:
        """Waits for a condition, for at most 60 s. Returns the virtual seconds that passed."""
        started_s = self.loop.time()
        while not condition():
            assert self.loop.time() - started_s < 60, "not within 60 s"
            await asyncio.sleep(0.0005)
        return self.loop.time() - started_s

    async def wait_until_equal(self, *nodes: int) -> None:
        """Waits until all replicas of partition 0, or those of these nodes, have the same log end,
        which is also their high watermark. Asserts that their records are equal.
        """
        chosen = [self.nodes[node_id] for node_id in nodes or self.state[0].replicas]

        def is_equal() -> bool:
            logs = [node.partition().log for node in chosen]
            return all((log.end, log.high_watermark) == (logs[0].end, logs[0].end) for log in logs)

        await self.wait_until(is_equal)
        assert all(node.values() == chosen[0].values() for node in chosen)
