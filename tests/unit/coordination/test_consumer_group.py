"""The state machine of consumer groups (KIP-848), by examples and at random."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.coordination import consumer_heartbeat
from ottla_broker.coordination.assignors import TopicIdPartition
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import ClassicMemberMetadata
from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat
from ottla_broker.coordination.consumer_member import ConsumerMember, MemberState
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.wire.errors import ErrorCode
from tests.unit.coordination.consumer_group_simulation import Client, ConsumerGroupSimulation

INTERVALS_MS = st.sampled_from((0, 1_000, 15_000))


def start_group(members: int, partitions: int) -> tuple[ConsumerGroupSimulation, list[Client]]:
    group = ConsumerGroupSimulation()
    group.set_partitions("t", partitions)
    clients = [group.add_client("t") for _ in range(members)]
    return group, clients


def test_a_member_keeps_all_else_when_it_gets_another_assignment() -> None:
    classic = ClassicMemberMetadata(session_timeout_ms=9, supported_protocols=())
    one, other = {UUID(int=1): frozenset({1})}, {UUID(int=1): frozenset({2})}
    member = ConsumerMember(
        "m", "i", "r", "c", "/h", 5, ("t",), "u.*", "range", classic, 1, 0, MemberState.unknown, one, other
    )
    assert all(getattr(member, name) != getattr(ConsumerMember(""), name) for name in ConsumerMember._fields)
    after = member.with_assignment(3, 2, MemberState.unrevoked_partitions, other, one)
    changed: dict[str, Any] = {"epoch": 3, "previous_epoch": 2, "state": MemberState.unrevoked_partitions}
    assert after == member._replace(**changed, assigned=other, pending_revocation=one)


def test_a_heartbeat_with_its_epoch_alone_is_recognized_and_keeps_its_client() -> None:
    heartbeat = ConsumerHeartbeat("m", 4, "i", client_id="c", client_host="/h", may_describe=str.isascii)
    assert heartbeat.is_epoch_only
    assert heartbeat.with_epoch(5) == heartbeat._replace(member_epoch=5)
    says_more: dict[str, Any] = {
        "rack_id": "r",
        "rebalance_timeout_ms": 5,
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": "u.*",
        "server_assignor": "range",
        "owned": {},
    }
    known = {"member_id", "member_epoch", "group_instance_id", "client_id", "client_host", "may_describe"}
    assert set(ConsumerHeartbeat._fields) == known | says_more.keys()
    assert not any(heartbeat._replace(**{name: value}).is_epoch_only for name, value in says_more.items())


def test_the_first_member_is_assigned_everything_at_once() -> None:
    group, [client] = start_group(1, 3)
    group.send_heartbeat(client)
    assert (client.epoch, len(client.assigned), group.state()) == (1, 3, "Stable")


def test_a_partition_is_assigned_only_after_its_owner_has_given_it_up() -> None:
    group, [first, second] = start_group(2, 2)
    group.send_heartbeat(first)
    group.reconcile(first)
    group.send_heartbeat(second)
    assert second.assigned == set()
    assert group.group.members["m1"].state is MemberState.unreleased_partitions
    group.send_heartbeat(first)  # learns that it must give up one, and still has it
    assert group.state() == "Reconciling"
    group.send_heartbeat(second)
    assert second.assigned == set()
    group.reconcile(first)
    group.send_heartbeat(first)
    group.send_heartbeat(second)
    assert len(second.assigned) == 1 and len(first.consumes) == 1
    assert group.state() == "Stable"


def test_a_member_that_lost_a_response_continues_with_its_previous_epoch() -> None:
    group, [first, second] = start_group(2, 2)
    group.send_heartbeat(first)
    group.reconcile(first)
    group.send_heartbeat(second)
    group.send_heartbeat(first)
    group.reconcile(first)
    group.send_heartbeat(first, is_response_lost=True)
    group.send_heartbeat(first)
    assert first.errors == [] and first.epoch == group.group.epoch


def test_an_epoch_that_a_member_never_had_is_fenced() -> None:
    group, [client] = start_group(1, 1)
    group.send_heartbeat(client)
    client.epoch = 7
    group.send_heartbeat(client)
    assert client.errors == [ErrorCode.fenced_member_epoch]
    group.converge()


def test_a_member_that_keeps_what_it_must_give_up_is_removed() -> None:
    group, [first, second] = start_group(2, 2)
    group.send_heartbeat(first)
    group.reconcile(first)
    group.send_heartbeat(second)
    for _ in range(15):
        group.send_heartbeat(first)
        group.send_heartbeat(second)
        group.pass_time(5_000)
    assert first.errors == [ErrorCode.unknown_member_id]
    assert second.errors == []


def test_a_static_member_gets_its_assignment_back_under_another_id() -> None:
    group = ConsumerGroupSimulation()
    group.set_partitions("t", 4)
    static, other = group.add_client("t", instance="i"), group.add_client("t")
    group.converge()
    before, epoch = set(static.consumes), group.group.epoch
    group.leave(static, for_restart=True)
    again = group.add_client("t", instance="i")
    group.converge()
    assert again.consumes == before and group.group.epoch == epoch and len(other.consumes) == 2


def test_an_instance_id_in_use_cannot_be_taken() -> None:
    group = ConsumerGroupSimulation()
    group.set_partitions("t", 1)
    group.send_heartbeat(group.add_client("t", instance="i"))
    rival = group.add_client("t", instance="i")
    group.send_heartbeat(rival)
    assert rival.errors == [ErrorCode.unreleased_instance_id]


def test_a_static_member_returns_to_a_full_group() -> None:
    group = ConsumerGroupSimulation(ConsumerGroupConfig(max_size=2))
    group.set_partitions("t", 2)
    static, _ = group.add_client("t", instance="i"), group.add_client("t")
    group.converge()
    extra = group.add_client("t")
    group.send_heartbeat(extra)
    assert extra.errors == [ErrorCode.group_max_size_reached]
    group.crash(extra)
    group.leave(static, for_restart=True)
    again = group.add_client("t", instance="i")
    group.converge()
    assert again.errors == []


def test_new_partitions_and_deleted_topics_are_noticed_with_the_next_heartbeat() -> None:
    group, [client] = start_group(1, 1)
    client.topics = ("t", "u")
    group.converge()
    group.set_partitions("u", 2)
    group.set_partitions("t", 3)
    group.converge()
    assert len(client.consumes) == 5
    deleted = group.image.topics.pop("u")
    del group.image.topic_names[deleted.id]
    group.metadata.on_topics_changed()
    group.converge()
    assert len(client.consumes) == 3


ACTIONS = ("join", "heartbeat", "lose response", "reconcile", "leave", "restart", "crash", "time", "grow", "move")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_partition_has_two_consumers_and_every_run_converges(data: Any) -> None:
    run_at_random(data)


def run_at_random(data: Any) -> None:
    """Takes random actions. Raises AssertionError if an invariant is violated, or the group does
    not converge.
    """
    group = ConsumerGroupSimulation(ConsumerGroupConfig(assignment_interval_ms=data.draw(INTERVALS_MS)))
    group.set_partitions("t", data.draw(st.integers(1, 6)))
    assignor = data.draw(st.sampled_from((None, "uniform", "range")))
    for _ in range(data.draw(st.integers(1, 60))):
        live = [client for client in group.clients if client.is_alive]
        action = data.draw(st.sampled_from(ACTIONS))
        client = data.draw(st.sampled_from(live)) if live else None
        if action == "join" and len(live) < 5:
            topics = data.draw(st.sampled_from((("t",), ("t", "u"), ("u",))))
            group.add_client(*topics, assignor=assignor)
        elif action == "time":
            group.pass_time(data.draw(st.sampled_from((1_000, 20_000, 50_000))))
        elif action == "grow":
            topic = data.draw(st.sampled_from(("t", "u")))
            present = len(group.image.topics[topic].partitions) if topic in group.image.topics else 0
            group.set_partitions(topic, present + data.draw(st.integers(1, 3)))
        elif action == "move":
            group.move_coordinator()
        elif client is None:
            continue
        elif action in ("heartbeat", "lose response"):
            group.send_heartbeat(client, is_response_lost=action == "lose response")
        elif action == "reconcile":
            group.reconcile(client)
        elif action == "restart":
            instance = client.instance or f"i{len(group.clients)}"
            group.leave(client, for_restart=True)
            if client.instance is not None or not any(it.instance == instance for it in group.clients):
                group.add_client(*client.topics, instance=instance, assignor=assignor)
        elif action == "leave":
            group.leave(client)
        elif action == "crash":
            group.crash(client)
    group.converge()


class ForgottenOwners(dict[TopicIdPartition, str]):
    """No look-up finds an owner."""

    def get(self, _: TopicIdPartition, default: Any = None, /) -> Any:
        return default


def test_the_model_notices_an_assignment_before_the_revocation() -> None:
    """One run, with a coordinator that does not know who owns a partition."""
    group, [first, second] = start_group(2, 2)
    group.group.owners = ForgottenOwners()
    group.send_heartbeat(first)
    group.reconcile(first)
    with pytest.raises(AssertionError):
        group.send_heartbeat(second)
        group.reconcile(second)


def test_changes_within_the_assignment_interval_are_assigned_together() -> None:
    group = ConsumerGroupSimulation(ConsumerGroupConfig(assignment_interval_ms=1_000))
    group.set_partitions("t", 6)
    first, second, third = (group.add_client("t") for _ in range(3))
    group.send_heartbeat(first)
    assert len(first.assigned) == 6, "the first assignment waits for nothing"
    group.send_heartbeat(second)
    group.send_heartbeat(third)
    assert (second.epoch, second.assigned, third.assigned) == (1, set(), set())
    assert (group.group.epoch, group.group.assignment_epoch, group.state()) == (3, 1, "Assigning")
    group.pass_time(999)
    group.send_heartbeat(first)
    assert group.group.assignment_epoch == 1
    group.pass_time(1)
    group.send_heartbeat(first)
    assert (group.group.assignment_epoch, len(first.assigned)) == (3, 2)
    group.converge()
    for client in (first, second, third):
        group.leave(client)
    late = group.add_client("t")
    group.send_heartbeat(late)
    assert len(late.assigned) == 6, "an empty group starts afresh"


@given(data=st.data())
def test_an_undone_change_leaves_the_group_as_it_was(data: st.DataObject) -> None:
    group = ConsumerGroupSimulation()
    group.set_partitions("t", 5)
    clients = [group.add_client("t", instance=data.draw(st.sampled_from([None, f"i{at}"]))) for at in range(3)]
    for client in data.draw(st.lists(st.sampled_from(clients), max_size=8)):
        group.send_heartbeat(client)
        group.reconcile(client)
    before, change = state_of(group.group), ConsumerChange(group.group)
    for member_id in data.draw(st.lists(st.sampled_from(["m1", "m2", "other"]), min_size=1, max_size=4)):
        if member_id in group.group.members and data.draw(st.booleans()):
            consumer_heartbeat.fence_members(change, [member_id], group.metadata)
        else:
            request = ConsumerHeartbeat(member_id, 0, None, "rack", 60_000, ("t",), "u.*", "range", {})
            consumer_heartbeat.heartbeat(change, request, group.metadata, group.config, group.now())
    change.undo()
    assert state_of(group.group) == before
    group.converge()


def state_of(group: ConsumerGroup) -> tuple[Any, ...]:
    """The state of a group without the deadlines of sessions, which a heartbeat may extend."""
    subscriptions = group.subscriptions
    parts = group.members, group.targets, group.owners, group.static_members, group.regular_expressions
    counts = subscriptions.by_subscription, subscriptions.by_assignor
    single = group.epoch, group.assignment_epoch, group.metadata_hash
    revocations = {member_id: (it.revocation, it.revocation_epoch) for member_id, it in group.deadlines.items()}
    return *(dict(part) for part in (*parts, *counts)), revocations, single
