"""Share groups in a group coordinator: members, assignments, records, restarts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_broker.coordination.assignors import AssignableMember, Assignment
from ottla_broker.coordination.share_assignor import assign_shares
from ottla_broker.coordination.share_group import ShareGroup, ShareGroupState
from ottla_broker.coordination.share_group_requests import StatePartition
from ottla_broker.coordination.share_heartbeat import ShareHeartbeat, ShareHeartbeatResult
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.consumer_group_simulation import add_topic
from tests.unit.coordination.one_shard import CoordinatorBroker, commits, join_request, run_with_broker
from tests.unit.kafka_errors import error_of


class MemoryStates:
    """Share coordinators that keep states in memory. `states`: (group, topic id, partition) →
    (state epoch, start offset). `failure`: error of each request.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[str, UUID, int], tuple[int, int]] = {}
        self.failure: KafkaError | None = None

    async def initialize_state(self, group_id: str, at: StatePartition, state_epoch: int, start_offset: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.states[group_id, at.topic_id, at.partition] = state_epoch, start_offset

    async def delete_state(self, group_id: str, at: StatePartition) -> None:
        if self.failure is not None:
            raise self.failure
        self.states.pop((group_id, at.topic_id, at.partition), None)


def run_with_states(test: Callable[[CoordinatorBroker, MemoryStates], Awaitable[None]]) -> None:
    """Runs a test of a group coordinator with share coordinators, on virtual time."""

    async def with_states(broker: CoordinatorBroker) -> None:
        states = MemoryStates()
        broker.share_states = lambda: states
        await broker.restart()
        await test(broker, states)

    run_with_broker(with_states)


async def send_heartbeat(broker: CoordinatorBroker, member: str, epoch: int, **fields: Any) -> ShareHeartbeatResult:
    """Sends a heartbeat. A member that joins subscribes to t."""
    if epoch == 0:
        fields = {"subscribed_topic_names": ("t",)} | fields
    return await broker.groups.share_groups_of("g").heartbeat("g", ShareHeartbeat(member, epoch, **fields))


def find_group(broker: CoordinatorBroker) -> ShareGroup:
    return broker.groups.share_groups_of("g").find_group("g")


def test_the_first_response_has_the_assignment_of_initialized_partitions() -> None:
    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:
        topic = add_topic(broker.image, "t", 3)
        joined = await send_heartbeat(broker, "m", 0)
        assert joined.assignment == {topic: frozenset(range(3))}
        assert states.states == {("g", topic, at): (2, -1) for at in range(3)}
        again = await send_heartbeat(broker, "m", joined.member_epoch)
        assert (again.assignment, again.member_epoch) == (None, joined.member_epoch)

    run_with_states(test)


def test_a_group_is_restored_from_its_records() -> None:
    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:
        add_topic(broker.image, "t", 3)
        joined = await send_heartbeat(broker, "m", 0, rack_id="r", client_id="c", client_host="/h")
        before = find_group(broker)
        await broker.restart()
        after = find_group(broker)
        assert (after.members, after.targets, after.initialized) == (
            before.members,
            before.targets,
            before.initialized,
        )
        assert (after.epoch, after.assignment_epoch, after.metadata_hash) == (
            before.epoch,
            before.assignment_epoch,
            before.metadata_hash,
        )
        assert (await send_heartbeat(broker, "m", joined.member_epoch)).member_epoch == joined.member_epoch
        assert await error_of(send_heartbeat(broker, "other", 1)) is ErrorCode.unknown_member_id
        assert await error_of(send_heartbeat(broker, "m", 77)) is ErrorCode.fenced_member_epoch

    run_with_states(test)


def test_a_partition_whose_state_cannot_be_initialized_is_assigned_later() -> None:
    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:
        topic = add_topic(broker.image, "t", 1)
        states.failure = KafkaError(ErrorCode.coordinator_not_available)
        joined = await send_heartbeat(broker, "m", 0)
        assert joined.assignment == {}
        states.failure = None
        assert (await send_heartbeat(broker, "m", joined.member_epoch)).assignment == {topic: frozenset({0})}

    run_with_states(test)


def test_a_coordinator_that_cannot_replicate_initializes_no_state() -> None:
    """Its successor does not know the group epoch that the state would begin with."""

    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:
        topic = add_topic(broker.image, "t", 1)
        states.failure = KafkaError(ErrorCode.coordinator_not_available)
        joined = await send_heartbeat(broker, "m", 0)
        states.failure, broker.journal.delay_s = None, 20
        assert await error_of(send_heartbeat(broker, "m", joined.member_epoch)) is ErrorCode.coordinator_not_available
        assert states.states == {}
        broker.journal.delay_s = 0
        await asyncio.sleep(20)
        assert (await send_heartbeat(broker, "m", joined.member_epoch)).assignment == {topic: frozenset({0})}

    run_with_states(test)


def test_new_partitions_are_assigned_and_members_expire() -> None:
    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:

        topic = add_topic(broker.image, "t", 1)
        joined = await send_heartbeat(broker, "m", 0)
        add_topic(broker.image, "t", 2)
        broker.groups.metadata.on_topics_changed()
        grown = await send_heartbeat(broker, "m", joined.member_epoch)
        assert grown.assignment == {topic: frozenset({0, 1})}
        await asyncio.sleep(50)
        assert find_group(broker).state is ShareGroupState.empty

    run_with_states(test)


def test_classic_requests_to_a_share_group_are_refused_and_an_empty_one_is_deleted() -> None:
    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:
        add_topic(broker.image, "t", 1)
        joined = await send_heartbeat(broker, "m", 0)
        assert await error_of(broker.groups.join_group("g", join_request())) is ErrorCode.inconsistent_group_protocol
        assert (
            await error_of(broker.groups.commit_offsets("g", "", None, -1, commits())) is ErrorCode.group_id_not_found
        )
        with pytest.raises(KafkaError):
            broker.groups.fetch_offsets("g")
        assert [(one.id, one.type) for one in broker.groups.list_groups()] == [("g", "share")]
        assert await error_of(broker.groups.delete_group("g")) is ErrorCode.non_empty_group
        await send_heartbeat(broker, "m", -1)
        assert joined.member_epoch > 0
        await broker.groups.delete_group("g")
        assert (broker.groups.list_groups(), states.states) == ([], {})
        await broker.restart()
        assert broker.groups.list_groups() == []

    run_with_states(test)


def test_offsets_are_set_in_a_later_state_epoch() -> None:
    async def test(broker: CoordinatorBroker, states: MemoryStates) -> None:
        topic = add_topic(broker.image, "t", 1)
        await send_heartbeat(broker, "m", 0)
        at = StatePartition(topic, 0)
        requests = broker.groups.share_groups_of("g")
        assert await error_of(requests.alter_offsets("g", {at: 5})) is ErrorCode.non_empty_group
        await send_heartbeat(broker, "m", -1)
        first_epoch, _ = states.states["g", topic, 0]
        assert await requests.alter_offsets("g", {at: 5}) == {}
        epoch, start = states.states["g", topic, 0]
        assert epoch > first_epoch and start == 5
        assert await requests.delete_offsets("g", [topic]) == {}
        assert (states.states, find_group(broker).initialized) == ({}, {})

    run_with_states(test)


TOPICS = [UUID(int=1), UUID(int=2)]


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.tuples(
            st.frozensets(st.sampled_from(TOPICS), min_size=1),
            st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 5), min_size=1)),
        ),
        min_size=1,
    ),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
@example(  # two members have all that they may keep, and the third one would get the rest alone
    {
        "a": (frozenset(TOPICS), {}),
        "b": (frozenset(TOPICS), {TOPICS[0]: frozenset({0, 1, 2})}),
        "c": (frozenset(TOPICS), {TOPICS[1]: frozenset({0, 1, 2})}),
    },
    (3, 4),
)
def test_every_partition_has_a_member_and_every_member_a_partition(
    members: dict[str, tuple[frozenset[UUID], Assignment]], counts: tuple[int, int]
) -> None:
    partitions = {topic: frozenset(range(count)) for topic, count in zip(TOPICS, counts, strict=True)}
    assignable = {name: AssignableMember(topics, target) for name, (topics, target) in members.items()}
    assigned = assign_shares(assignable, partitions)
    assert assigned.keys() == members.keys()
    for name, assignment in assigned.items():
        topics, _ = members[name]
        for topic, mine in assignment.items():
            assert topic in topics and mine <= partitions[topic]
        assert assignment or not any(partitions[topic] for topic in topics)
    for topic in TOPICS:
        if any(topic in topics for topics, _ in members.values()):
            held = frozenset().union(*(one.get(topic, frozenset()) for one in assigned.values()))
            assert held == partitions[topic]
    again = {name: AssignableMember(topics, assigned[name]) for name, (topics, _) in members.items()}
    if len({topics for topics, _ in members.values()}) == 1:
        assert assign_shares(again, partitions) == assigned
        sizes = [sum(map(len, one.values())) for one in assigned.values()]
        assert max(sizes) - min(sizes) <= 1
