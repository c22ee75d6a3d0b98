"""A consumer group (KIP-848), its members without I/O, and a clock. The test decides who acts next,
which responses are lost, and when the coordinator moves to another broker.

A member consumes the partitions that it was assigned, and gives up revoked ones before it reports
so. After every step no partition has two consumers.
"""

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.coordination import consumer_heartbeat, member_deadlines
from ottla_broker.coordination.assignors import Assignment, TopicIdPartition, partitions_of, to_assignment
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup, ConsumerGroupState
from ottla_broker.coordination.consumer_group_records import CONSUMER_GROUP_RECORDS, ConsumerGroupKey
from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

REBALANCE_MS = 60_000
SESSION_MS = 45_000


def add_topic(image: MetadataImage, name: str, partitions: int) -> UUID:
    """Adds a topic, or replaces it by the same one with more partitions. Returns its id."""
    topic_id = image.topics[name].id if name in image.topics else UUID(int=len(image.topic_names) + 1)
    parts = {p: PartitionRecord(topic_id, p, (1,), (1,), 1) for p in range(partitions)}
    image.topics[name] = TopicImage(name, topic_id, parts)
    image.topic_names[topic_id] = name
    return topic_id


@dataclass(eq=False)
class Client:
    """`consumes`: partitions that the application reads now. `assigned`: those of the last
    assignment that it received."""

    member_id: str
    topics: tuple[str, ...]
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    consumes: set[TopicIdPartition] = field(default_factory=set)
    assigned: set[TopicIdPartition] = field(default_factory=set)
    is_alive: bool = True
    heartbeat_ms: int = 0
    errors: list[ErrorCode] = field(default_factory=list)

    def receive(self, result: HeartbeatResult) -> None:
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.assigned = set(partitions_of(result.assignment))

    def reconcile(self) -> None:
        """As a consumer does: revokes first, and takes new partitions only then."""
        if self.consumes - self.assigned:
            self.consumes &= self.assigned
        else:
            self.consumes = set(self.assigned)

    def rejoin(self) -> None:
        """Gives up all partitions, to join with the next heartbeat."""
        self.epoch, self.consumes, self.assigned = 0, set(), set()


class ConsumerGroupSimulation:
    """`log`: records of the group, as (key, value). `ms`: the time."""

    def __init__(self, config: ConsumerGroupConfig | None = None) -> None:
        self.config = config or ConsumerGroupConfig(assignment_interval_ms=0)
        self.image = MetadataImage()
        self.metadata = CoordinatorMetadata(self.image)
        self.group = ConsumerGroup("g")
        self.log: list[tuple[bytes, bytes | None]] = []
        self.clients: list[Client] = []
        self.ms = 0

    def now(self) -> Timestamps:
        return Timestamps(self.ms, 1_700_000_000_000 + self.ms)

    def state(self) -> str:
        return self.group.state

    # -- what happens in the cluster ---------------------------------------------------------------

    def set_partitions(self, topic: str, partitions: int) -> None:
        add_topic(self.image, topic, partitions)
        self.metadata.on_topics_changed()

    def add_client(self, *topics: str, instance: str | None = None, assignor: str | None = None) -> Client:
        client = Client(f"m{len(self.clients)}", topics, instance, assignor, heartbeat_ms=self.ms)
        self.clients.append(client)
        return client

    def move_coordinator(self) -> None:
        """Another broker rebuilds the group from its records, and all sessions restart."""
        group = ConsumerGroup("g")
        for raw_key, raw_value in self.log:
            key = CONSUMER_GROUP_RECORDS.decode_key(raw_key)
            assert key is not None
            if raw_value is None and isinstance(key, ConsumerGroupKey):
                group = ConsumerGroup("g")
            else:
                group.apply(key, CONSUMER_GROUP_RECORDS.decode_value(key, raw_value))
        for member in group.members.values():
            member_deadlines.schedule_session_timeout(group, member, SESSION_MS, self.now())
            member_deadlines.schedule_revocation_timeout(group, member, self.now())
        self.group = group

    def pass_time(self, ms: int) -> None:
        """The group removes members without a heartbeat for the session timeout, and members that
        have not given up partitions in time. A client whose session has expired stops consuming by
        itself.
        """
        self.ms += ms
        expired = member_deadlines.take_expired_members(self.group, self.now())
        for client in self.clients:
            if client.member_id in expired:
                client.consumes.clear()
                client.assigned.clear()  # its next step must not take the old assignment again
        if expired:
            change = ConsumerChange(self.group)
            consumer_heartbeat.fence_members(change, list(expired), self.metadata)
            self._append(change)
        self.check_owners()

    def _append(self, change: ConsumerChange) -> None:
        self.log += [
            (
                CONSUMER_GROUP_RECORDS.encode_key(key),
                None if value is None else CONSUMER_GROUP_RECORDS.encode_value(key, value),
            )
            for key, value in change.records
        ]

    # -- what clients do ---------------------------------------------------------------------------

    def send_heartbeat(self, client: Client, *, is_response_lost: bool = False) -> None:
        """The client keeps the error of its heartbeat in `errors`. If it is fenced or unknown, its
        next heartbeat joins."""
        is_joining = client.epoch == 0
        request = ConsumerHeartbeat(
            client.member_id,
            client.epoch,
            client.instance,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=client.topics,
            server_assignor=client.assignor,
            owned={} if is_joining else self._owned(client),
        )
        client.heartbeat_ms = self.ms
        change = ConsumerChange(self.group)
        try:
            result = consumer_heartbeat.heartbeat(change, request, self.metadata, self.config, self.now())
        except KafkaError as reason:
            change.undo()
            client.errors.append(reason.code)
            if reason.code in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
                client.rejoin()
            return
        self._append(change)
        if not is_response_lost:
            client.receive(result)
        self.check_owners()

    def _owned(self, client: Client) -> Assignment:
        return to_assignment(client.consumes)

    def reconcile(self, client: Client) -> None:
        client.reconcile()
        self.check_owners()

    def leave(self, client: Client, *, for_restart: bool = False) -> None:
        """`for_restart`: a static member keeps its place until it returns."""
        client.is_alive, client.consumes = False, set()
        if client.member_id not in self.group.members:
            return
        change = ConsumerChange(self.group)
        member = self.group.members[client.member_id]
        if for_restart and client.instance is not None:
            consumer_heartbeat.leave_for_restart(change, member)
        else:
            consumer_heartbeat.fence_members(change, [client.member_id], self.metadata)
        self._append(change)

    def crash(self, client: Client) -> None:
        client.is_alive, client.consumes = False, set()

    # -- what must hold ----------------------------------------------------------------------------

    def check_owners(self) -> None:
        """Raises AssertionError if a partition has two consumers, or the group counts owners or
        subscriptions wrongly.
        """
        consumers: dict[TopicIdPartition, str] = {}
        for client in self.clients:
            for partition in client.consumes:
                assert partition not in consumers, (
                    f"{partition} is consumed by {consumers[partition]} and {client.member_id}"
                )
                consumers[partition] = client.member_id
        owned = [(p, m.id) for m in self.group.members.values() for p in m.owned_partitions()]
        assert len(owned) == len(self.group.owners)
        assert dict(owned) == self.group.owners
        assert self.group.subscriptions.by_subscription == Counter(m.subscription for m in self.group.members.values())

    def converge(self) -> None:
        """Runs heartbeats of all live clients until the group is stable. Raises AssertionError if
        it does not become stable.
        """
        for _ in range(60):
            for client in (it for it in self.clients if it.is_alive):
                self.send_heartbeat(client)
                self.reconcile(client)
                self.send_heartbeat(client)
            self.pass_time(5_000)
            if self.is_converged():
                return
        raise AssertionError(f"not converged: {self.group.state}, {self.group.members}")

    def is_converged(self) -> bool:
        """True if the group is stable, and its live clients consume every partition of their
        topics; without live clients, if it is empty.
        """
        live = [client for client in self.clients if client.is_alive]
        if {client.member_id for client in live} != self.group.members.keys():
            return False
        if not live:
            return self.group.state is ConsumerGroupState.empty
        wanted = {
            (topic.id, partition)
            for name, topic in self.image.topics.items()
            if any(name in client.topics for client in live)
            for partition in topic.partitions
        }
        consumed = [partition for client in live for partition in client.consumes]
        return (
            self.group.state is ConsumerGroupState.stable
            and sorted(consumed) == sorted(wanted)
            and all(client.consumes == client.assigned for client in live)
        )
