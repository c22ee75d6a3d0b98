"""A streams group and its clients, without a network and with a clock that tests set."""

from dataclasses import dataclass

from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import StreamsGroupConfig
from ottla_broker.coordination.streams_change import StreamsChange
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.coordination.streams_group_records import (
    STREAMS_GROUP_RECORDS,
    InternalTopic,
    StreamsTopologyValue,
    Subtopology,
    UserEndpoint,
)
from ottla_broker.coordination.streams_heartbeat import (
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    fence_members,
    heartbeat,
)
from ottla_broker.coordination.streams_tasks import (
    NOTHING_ASSIGNED,
    Task,
    TaskAssignment,
    group_tasks,
    tasks_of,
)
from ottla_broker.metadata.image import MetadataImage

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

    def set_partition_counts(self, **topics: int) -> None:
        self.topics |= topics
        self.on_topics_changed()


@dataclass
class Client:
    """A thread of an application, as far as the broker sees it. `assigned`: what it may run.
    `closing`: tasks that it must give up and still has. `has_lost_response`: its next heartbeat
    reports all that it has."""

    id: str
    process: str
    epoch: int = 0
    assigned: TaskAssignment = NOTHING_ASSIGNED
    closing: TaskAssignment = NOTHING_ASSIGNED
    has_lost_response: bool = False

    @property
    def held(self) -> TaskAssignment:
        """Tasks that it runs or is closing."""
        return TaskAssignment(
            *(
                group_tasks({*tasks_of(mine), *tasks_of(closing)})
                for mine, closing in zip(self.assigned.kinds, self.closing.kinds, strict=True)
            )
        )

    def take(self, tasks: TaskAssignment, *, at_once: bool) -> None:
        """Runs other tasks. Those that it must give up are closed by `close`, or at once."""
        held = self.held
        self.assigned = tasks
        if at_once:
            self.close()
        else:
            self.closing = TaskAssignment(
                *(
                    group_tasks({*tasks_of(had)} - {*tasks_of(has)})
                    for had, has in zip(held.kinds, tasks.kinds, strict=True)
                )
            )

    def close(self) -> None:
        self.closing = NOTHING_ASSIGNED

    def start_again(self) -> None:
        """Abandons all tasks, to join with the next heartbeat."""
        self.epoch, self.assigned, self.closing = 0, NOTHING_ASSIGNED, NOTHING_ASSIGNED


class StreamsGroupSimulation:
    """`log`: records of the group, as (key, value)."""

    def __init__(self, config: StreamsGroupConfig) -> None:
        self.config = config
        self.metadata = FakeMetadata()
        self.group = StreamsGroup("g")
        self.log: list[tuple[bytes, bytes | None]] = []
        self.clients: dict[str, Client] = {}
        self.now_ms = 0

    def send_heartbeat(
        self, client: Client, *, reports: bool = True, at_once: bool = True, is_lost: bool = False
    ) -> StreamsHeartbeatResult:
        """`reports`: the client reports its tasks, unless it is closing some. `at_once`: it gives
        up tasks when it gets the response. `is_lost`: it gets none. Returns the response in any
        case.
        """
        joins = client.epoch == 0
        reports = joins or client.has_lost_response or (reports and client.closing.is_empty)
        request = StreamsHeartbeat(
            client.id,
            client.epoch,
            rebalance_timeout_ms=1000 if joins else -1,
            topology=TOPOLOGY if joins else None,
            owned=client.held if reports else None,
            process_id=client.process if joins else None,
            user_endpoint=UserEndpoint(client.id, 1),
        )
        change = StreamsChange(self.group)
        result = heartbeat(change, request, self.metadata, self.config, Timestamps(self.now_ms, self.now_ms))
        self.write(change)
        client.has_lost_response = is_lost
        if is_lost:
            return result
        client.epoch = result.member_epoch
        if result.tasks is not None:
            client.take(result.tasks, at_once=at_once)
        return result

    def fence(self, client_id: str) -> None:
        change = StreamsChange(self.group)
        fence_members(change, [client_id])
        self.write(change)

    def write(self, change: StreamsChange) -> None:
        for key, value in change.records:
            encoded = None if value is None else STREAMS_GROUP_RECORDS.encode_value(key, value)
            self.log.append((STREAMS_GROUP_RECORDS.encode_key(key), encoded))

    def fail_over(self) -> None:
        """Another coordinator reads the log. Raises AssertionError if its group differs."""
        group = StreamsGroup("g")
        for raw_key, raw_value in self.log:
            key = STREAMS_GROUP_RECORDS.decode_key(raw_key)
            assert key is not None
            group.apply(key, STREAMS_GROUP_RECORDS.decode_value(key, raw_value))
        for field in ("epoch", "assignment_epoch", "members", "targets", "active_owners", "topology", "metadata_hash"):
            assert getattr(group, field) == getattr(self.group, field), field
        self.group = group

    def check_tasks(self) -> None:
        """Raises AssertionError if a task is active at two clients, or has two copies, active or
        standby, in one process."""
        owners: dict[Task, str] = {}
        holders: dict[tuple[str, Task], str] = {}
        for client in self.clients.values():
            for task in tasks_of(client.held.active):
                assert task not in owners, f"{task} runs in {owners[task]} and {client.id}"
                owners[task] = client.id
            for task in client.held.all_tasks():
                other = holders.setdefault((client.process, task), client.id)
                assert other == client.id, f"{client.process} has copies of {task} in {other} and {client.id}"
