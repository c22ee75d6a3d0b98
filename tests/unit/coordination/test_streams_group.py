"""Heartbeats of streams groups: statuses, epochs, delays, lost responses and endpoints."""

import pytest
from msgspec.structs import replace

from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import StreamsGroupConfig
from ottla_broker.coordination.streams_change import StreamsChange
from ottla_broker.coordination.streams_group import StreamsGroup, StreamsGroupState
from ottla_broker.coordination.streams_group_records import (
    STREAMS_GROUP_RECORDS,
    AssignedTaskIds,
    CopartitionGroup,
    StreamsCurrentKey,
    StreamsCurrentValue,
    StreamsTopologyValue,
    UserEndpoint,
)
from ottla_broker.coordination.streams_heartbeat import StreamsHeartbeat, heartbeat
from ottla_broker.coordination.streams_tasks import NOTHING_ASSIGNED, Task, group_tasks, tasks_of
from ottla_broker.coordination.streams_topology import StreamsStatus
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.streams_group_simulation import (
    CHANGELOG,
    TOPOLOGY,
    Client,
    FakeMetadata,
    StreamsGroupSimulation,
)
from tests.unit.kafka_errors import error_raised_by


def test_statuses_say_what_is_missing() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    client = Client("m", "p")
    assert [one.code for one in group.send_heartbeat(client).statuses] == [StreamsStatus.missing_source_topics]
    assert group.group.state.value == "NotReady"
    group.metadata.set_partition_counts(lines=2)
    result = group.send_heartbeat(client)
    assert [one.code for one in result.statuses] == [StreamsStatus.missing_internal_topics]
    assert result.missing_topics == (CHANGELOG._replace(partitions=2),)
    group.metadata.set_partition_counts(counts=2)
    result = group.send_heartbeat(client)
    assert not result.statuses and result.tasks is not None and set(result.tasks.active) == {"0"}
    assert str(group.group.state) == "Stable"


def test_the_first_assignment_waits_for_more_members() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=3000))
    group.metadata.set_partition_counts(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    assert [it.code for it in group.send_heartbeat(one).statuses] == [StreamsStatus.assignment_delayed]
    assert one.epoch == 1, "it waits in the first epoch"
    group.send_heartbeat(two)
    group.now_ms = 3000
    group.send_heartbeat(one)
    group.send_heartbeat(two)
    assert [len(client.assigned.active["0"]) for client in (one, two)] == [1, 1]


def test_a_shutdown_of_the_application_is_reported_to_all_members_until_the_group_is_empty() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    clients = [Client("a", "p"), Client("b", "q")]
    for client in clients:
        group.send_heartbeat(client)
    group.group.shutdown_requested_by = "a"
    group.fence("a")
    assert [it.code for it in group.send_heartbeat(clients[1]).statuses] == [StreamsStatus.shutdown_application]
    group.fence("b")
    assert not group.send_heartbeat(Client("c", "p")).statuses


@pytest.mark.parametrize("epoch", [1, 9])
def test_a_wrong_epoch_is_fenced(epoch: int) -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    client = Client("a", "p")
    group.send_heartbeat(client)
    client.epoch = epoch
    assert error_raised_by(group.send_heartbeat, client) is ErrorCode.fenced_member_epoch
    assert group.group.state is StreamsGroupState.stable


@pytest.mark.parametrize("same_epoch", [True, False])
def test_a_member_that_lost_a_response_gets_its_tasks_with_the_next_one(same_epoch: bool) -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    group.send_heartbeat(one)
    if same_epoch:  # the other member waits for a task, and gets it within its epoch
        group.send_heartbeat(two)
        group.send_heartbeat(one)
        group.send_heartbeat(one)
        losing = two
    else:  # a task is added with the next epoch
        group.metadata.set_partition_counts(lines=3, counts=3)
        losing = one
    before = losing.epoch, losing.assigned
    group.send_heartbeat(losing)
    lost = losing.assigned
    assert lost != before[1] and (losing.epoch == before[0]) == same_epoch
    losing.epoch, losing.assigned = before
    group.send_heartbeat(losing)
    assert losing.assigned == lost
    assert group.send_heartbeat(losing).tasks is None


def test_the_response_has_the_endpoints_of_the_members() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    result = group.send_heartbeat(Client("a", "p"))
    assert result.endpoints is not None and [one.user_endpoint for one in result.endpoints] == [UserEndpoint("a", 1)]


def test_an_assignment_waits_for_the_interval_after_the_last_one() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=1000))
    group.metadata.set_partition_counts(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    assert not group.send_heartbeat(one).statuses and tasks_of(one.assigned.active)
    assert [it.code for it in group.send_heartbeat(two).statuses] == [StreamsStatus.assignment_delayed]
    group.now_ms = 1000
    assert not group.send_heartbeat(two).statuses
    assert group.group.assignment_epoch == group.group.epoch


def test_a_member_commits_with_an_older_epoch_for_the_tasks_that_it_had_then_and_still_has() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    one, two = Client("a", "p"), Client("b", "q")
    group.send_heartbeat(one)
    before = one.epoch
    group.send_heartbeat(two)
    group.send_heartbeat(one, at_once=False)
    [given_up] = tasks_of(one.closing.active)
    [kept] = tasks_of(one.assigned.active)
    group.group.check_commit("a", before, 9, [("lines", given_up.partition), ("lines", kept.partition)])
    one.close()
    group.send_heartbeat(one)
    group.send_heartbeat(two)
    group.fail_over()
    assert one.epoch == two.epoch == before + 1
    group.group.check_commit("a", before, 9, [("lines", kept.partition)])
    stale = (
        ("a", before, [("lines", kept.partition), ("lines", given_up.partition)]),  # a has lost the second task
        ("b", before, [("lines", given_up.partition)]),  # b got the task later
        ("a", before - 1, [("lines", kept.partition)]),
        ("a", before, [("others", kept.partition)]),  # no task reads the topic
        ("a", before + 2, [("lines", kept.partition)]),
    )
    for member, epoch, partitions in stale:
        with pytest.raises(KafkaError) as refused:
            group.group.check_commit(member, epoch, 9, partitions)
        assert refused.value.code is ErrorCode.stale_member_epoch, (member, epoch, partitions)


def test_tasks_in_records_without_assignment_epochs_were_assigned_in_the_members_epoch() -> None:
    group = StreamsGroup("g")
    tasks = (AssignedTaskIds("0", (0, 1)),)
    value = StreamsCurrentValue(7, 6, 1, tasks, (), (), (AssignedTaskIds("1", (4,)),), (), ())
    key = StreamsCurrentKey("g", "m")
    group.apply(key, STREAMS_GROUP_RECORDS.decode_value(key, STREAMS_GROUP_RECORDS.encode_value(key, value)))
    assert group.members["m"].assignment_epochs == {Task("0", 0): 7, Task("0", 1): 7, Task("1", 4): 7}


def test_a_task_that_the_application_does_not_have_is_refused() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    client = Client("a", "p")
    group.send_heartbeat(client)
    assigned = client.assigned
    for odd in (Task("9", 0), Task("0", 2), Task("0", -1)):
        client.assigned = replace(assigned, standby=group_tasks([odd]))
        with pytest.raises(KafkaError) as refused:
            group.send_heartbeat(client)
        assert refused.value.code is ErrorCode.invalid_request
    client.assigned = assigned
    assert group.send_heartbeat(client).tasks is None


def test_a_waiting_member_that_has_used_its_new_epoch_is_fenced_if_it_sends_the_former_one() -> None:
    group = StreamsGroupSimulation(StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0))
    group.metadata.set_partition_counts(lines=2, counts=2)
    for client in (Client("a", "p"), waiting := Client("b", "q"), Client("c", "r")):
        group.send_heartbeat(client)
    former = waiting.epoch
    group.send_heartbeat(waiting)
    assert waiting.epoch > former, "it is in the new epoch, and waits for the task that the first member has"
    group.send_heartbeat(waiting)
    waiting.epoch = former
    with pytest.raises(KafkaError) as refused:
        group.send_heartbeat(waiting)
    assert refused.value.code is ErrorCode.fenced_member_epoch


def test_a_first_topology_with_an_impossible_copartition_group_is_refused() -> None:
    group = StreamsGroup("g")
    part = TOPOLOGY.subtopologies[0]._replace(copartition_groups=(CopartitionGroup((7,), (), ()),))
    joins = StreamsHeartbeat("m", 0, topology=StreamsTopologyValue(1, (part,)), owned=NOTHING_ASSIGNED, process_id="p")
    with pytest.raises(KafkaError) as refused:
        heartbeat(StreamsChange(group), joins, FakeMetadata(), StreamsGroupConfig(), Timestamps(0, 0))
    assert refused.value.code is ErrorCode.streams_invalid_topology
