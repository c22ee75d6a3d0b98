"""Streams groups under random members: joins, leaves, deaths, new topics and failovers."""

from dataclasses import dataclass
from random import Random

import pytest

from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import StreamsGroupConfig
from ottla_broker.coordination.streams_change import StreamsChange
from ottla_broker.coordination.streams_group import StreamsGroup, StreamsGroupState
from ottla_broker.coordination.streams_group_records import (
    InternalTopic,
    StreamsTopologyValue,
    Subtopology,
    UserEndpoint,
    decode_streams_group_key,
    decode_streams_group_value,
    encode_streams_group_key,
    encode_streams_group_value,
)
from ottla_broker.coordination.streams_heartbeat import (
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    fence_members,
    heartbeat,
)
from ottla_broker.coordination.streams_tasks import NOTHING_ASSIGNED, Task, TaskAssignment, tasks_of
from ottla_broker.coordination.streams_topology import StreamsStatus
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.wire.errors import ErrorCode, KafkaError

CHANGELOG = InternalTopic("counts", 0, 0, ())
TOPOLOGY = StreamsTopologyValue(1, (Subtopology("0", ("lines",), (), (CHANGELOG,), (), (), ()),))


class FakeMetadata(CoordinatorMetadata):
    """Topics by their partition counts."""

    def __init__(self) -> None:
        super().__init__(MetadataImage())
        self.topics: dict[str, int] = {}

    def partition_count_of(self, name: str) -> int | None:
        return self.topics.get(name)

    def hash_topics(self, names: object) -> int:
        return hash(tuple(sorted(self.topics.items()))) >> 1

    def set(self, **topics: int) -> None:
        self.topics |= topics
        self.on_topics_changed()


@dataclass
class Client:
    """A thread of an application, as far as the broker sees it."""

    id: str
    process: str
    epoch: int = 0
    running: TaskAssignment = NOTHING_ASSIGNED


class StreamsGroupWorld:
    def __init__(self, config: StreamsGroupConfig) -> None:
        self.config = config
        self.metadata = FakeMetadata()
        self.group = StreamsGroup("g")
        self.log: list[tuple[bytes, bytes | None]] = []
        self.clients: dict[str, Client] = {}
        self.now_ms = 0

    def send(self, client: Client, *, reports: bool = True) -> StreamsHeartbeatResult:
        joins = client.epoch == 0
        request = StreamsHeartbeat(
            client.id,
            client.epoch,
            rebalance_timeout_ms=1000 if joins else -1,
            topology=TOPOLOGY if joins else None,
            owned=(NOTHING_ASSIGNED if joins else client.running) if reports else None,
            process_id=client.process if joins else None,
            user_endpoint=UserEndpoint(client.id, 1),
        )
        change = StreamsChange(self.group)
        result = heartbeat(change, request, self.metadata, self.config, Timestamps(self.now_ms, self.now_ms))
        self.write(change)
        client.epoch = result.member_epoch
        if result.tasks is not None:
            client.running = result.tasks
        return result

    def fence(self, client_id: str) -> None:
        change = StreamsChange(self.group)
        fence_members(change, [client_id])
        self.write(change)

    def write(self, change: StreamsChange) -> None:
        for key, value in change.records:
            encoded = None if value is None else encode_streams_group_value(key, value)
            self.log.append((encode_streams_group_key(key), encoded))

    def fail_over(self) -> None:
        """Another coordinator reads the log."""
        group = StreamsGroup("g")
        for raw_key, raw_value in self.log:
            key = decode_streams_group_key(raw_key)
            assert key is not None
            group.apply(key, decode_streams_group_value(key, raw_value))
        for field in ("epoch", "assignment_epoch", "members", "targets", "active_owners", "topology", "metadata_hash"):
            assert getattr(group, field) == getattr(self.group, field), field
        self.group = group

    def check_owners(self) -> None:
        owners: dict[Task, str] = {}
        for client in self.clients.values():
            for task in tasks_of(client.running.active):
                assert task not in owners, f"{task} runs in {owners[task]} and {client.id}"
                owners[task] = client.id


@pytest.mark.parametrize("seed", range(60))
def test_no_task_has_two_active_owners_and_groups_become_stable(seed: int) -> None:
    random = Random(seed)
    world = StreamsGroupWorld(
        StreamsGroupConfig(
            num_standby_replicas=random.randrange(3), initial_rebalance_delay_ms=0, assignment_interval_ms=0
        )
    )
    world.metadata.set(lines=random.randrange(1, 6))
    for step in range(150):
        action = random.random()
        if (action < 0.08 and len(world.clients) < 5) or not world.clients:
            client = Client(f"m{step}", random.choice("pqr"))
            world.clients[client.id] = client
            world.send(client)
        elif action < 0.12:
            client_id = random.choice(sorted(world.clients))
            del world.clients[client_id]
            world.fence(client_id)
        elif action < 0.15:
            world.metadata.set(counts=world.metadata.topics["lines"])
        elif action < 0.2:
            world.fail_over()
        else:
            world.send(
                random.choice(sorted(world.clients.values(), key=lambda it: it.id)), reports=random.random() < 0.8
            )
        world.check_owners()
    world.metadata.set(counts=world.metadata.topics["lines"])
    for _ in range(8):
        for client in world.clients.values():
            world.send(client)
            world.check_owners()
    assert world.group.state is StreamsGroupState.stable
    running = {task for client in world.clients.values() for task in tasks_of(client.running.active)}
    assert running == {Task("0", at) for at in range(world.metadata.topics["lines"])}


def test_statuses_say_what_is_missing() -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    client = Client("m", "p")
    assert [one.code for one in world.send(client).statuses] == [StreamsStatus.missing_source_topics]
    assert world.group.state.value == "NotReady"
    world.metadata.set(lines=2)
    result = world.send(client)
    assert [one.code for one in result.statuses] == [StreamsStatus.missing_internal_topics]
    assert result.missing_topics == (CHANGELOG._replace(partitions=2),)
    world.metadata.set(counts=2)
    result = world.send(client)
    assert not result.statuses and result.tasks is not None and set(result.tasks.active) == {"0"}
    assert str(world.group.state) == "Stable"


def test_the_first_assignment_waits_for_more_members() -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=3000))
    world.metadata.set(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    assert [it.code for it in world.send(one).statuses] == [StreamsStatus.assignment_delayed]
    assert one.epoch == 1, "it waits in the first epoch"
    world.send(two)
    world.now_ms = 3000
    world.send(one)
    world.send(two)
    assert [len(client.running.active["0"]) for client in (one, two)] == [1, 1]


def test_a_shutdown_of_the_application_is_reported_to_all_members_until_the_group_is_empty() -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    world.metadata.set(lines=2, counts=2)
    clients = [Client("a", "p"), Client("b", "q")]
    for client in clients:
        world.send(client)
    world.group.shutdown_requested_by = "a"
    world.fence("a")
    assert [it.code for it in world.send(clients[1]).statuses] == [StreamsStatus.shutdown_application]
    world.fence("b")
    assert not world.send(Client("c", "p")).statuses


@pytest.mark.parametrize(("epoch", "code"), [(9, ErrorCode.fenced_member_epoch), (1, ErrorCode.fenced_member_epoch)])
def test_a_wrong_epoch_is_fenced(epoch: int, code: ErrorCode) -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    world.metadata.set(lines=2, counts=2)
    client = Client("a", "p")
    world.send(client)
    client.epoch = epoch
    with pytest.raises(KafkaError) as refused:
        world.send(client)
    assert refused.value.code is code
    assert world.group.state is StreamsGroupState.stable


@pytest.mark.parametrize("same_epoch", [True, False])
def test_a_member_that_lost_a_response_gets_its_tasks_with_the_next_one(same_epoch: bool) -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    world.metadata.set(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    world.send(one)
    if same_epoch:  # the other member waits for a task, and gets it within its epoch
        world.send(two)
        world.send(one)
        world.send(one)
        losing = two
    else:  # a task is added with the next epoch
        world.metadata.set(lines=3, counts=3)
        losing = one
    before = losing.epoch, losing.running
    world.send(losing)
    lost = losing.running
    assert lost != before[1] and (losing.epoch == before[0]) == same_epoch
    losing.epoch, losing.running = before
    world.send(losing)
    assert losing.running == lost
    assert world.send(losing).tasks is None


def test_members_learn_of_each_others_endpoints() -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    world.metadata.set(lines=2, counts=2)
    result = world.send(Client("a", "p"))
    assert result.endpoints is not None and [one.user_endpoint for one in result.endpoints] == [UserEndpoint("a", 1)]


def test_an_assignment_waits_for_the_interval_after_the_last_one() -> None:
    world = StreamsGroupWorld(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=1000))
    world.metadata.set(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    assert not world.send(one).statuses and tasks_of(one.running.active)
    assert [it.code for it in world.send(two).statuses] == [StreamsStatus.assignment_delayed]
    world.now_ms = 1000
    assert not world.send(two).statuses
    assert world.group.assignment_epoch == world.group.epoch
