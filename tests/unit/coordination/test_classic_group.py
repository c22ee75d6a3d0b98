"""The classic group protocol in each state of a group, as in Apache Kafka."""

import pytest

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState, restore_group
from ottla_broker.coordination.classic_membership import leave_group, sync_group
from ottla_broker.coordination.consumer_protocol import read_subscribed_topics
from ottla_broker.coordination.effects import LeavingMember, SyncRequest
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.group_simulation import Client, GroupSimulation

SUBSCRIPTION = bytes.fromhex("00030000000200016100026262ffffffff00000000")  # topics a and bb, version 3


def stable(*clients: Client, sim: GroupSimulation | None = None) -> GroupSimulation:
    """A simulation whose group is Stable with these members, which joined in this order."""
    sim = sim or GroupSimulation()
    for client in clients:
        sim.add_client(client)
        while client.phase == "join":
            sim.step(client)
    sim.settle()
    assert sim.is_settled()
    return sim


def test_dynamic_member_gets_its_id_before_it_joins() -> None:
    sim, client = GroupSimulation(), Client("c")
    sim.step(sim.add_client(client))
    assert client.errors == [ErrorCode.member_id_required]
    assert client.member_id.startswith("c-")
    assert (sim.state(), sim.group.members) == (GroupState.empty, {})
    assert list(sim.group.pending_joins) == [client.member_id]
    sim.step(client)
    assert list(sim.group.members) == [client.member_id]
    assert not sim.group.pending_joins


def test_unused_member_id_expires_after_the_session_timeout() -> None:
    sim = GroupSimulation()
    sim.step(sim.add_client(Client("c", session_ms=8_000)))
    sim.advance(7_999)
    assert sim.group.pending_joins
    sim.advance(1)
    assert not sim.group.pending_joins
    assert sim.group.next_deadline_ms is None


def test_clients_before_version_4_join_at_once() -> None:
    sim, client = GroupSimulation(), Client("c", version=3)
    sim.step(sim.add_client(client))
    assert client.phase == "joining"
    assert len(sim.group.members) == 1


def test_initial_rebalance_delay_starts_again_with_each_member() -> None:
    sim, first, second = GroupSimulation(), Client("a", version=3), Client("b", version=3)
    sim.step(sim.add_client(first))
    sim.advance(2_999)
    sim.step(sim.add_client(second))
    sim.advance(1)
    assert sim.state() is GroupState.preparing, "the second member has restarted the delay"
    sim.advance(2_999)
    assert sim.state() is GroupState.preparing
    sim.advance(1)
    assert sim.state() is GroupState.completing
    assert (first.generation, second.generation) == (1, 1)
    assert first.is_leader
    assert not second.is_leader
    assert first.join_result is not None
    assert [m.member_id for m in first.join_result.members] == [first.member_id, second.member_id]


def test_initial_rebalance_ends_at_the_rebalance_timeout() -> None:
    sim = GroupSimulation()
    for n in range(8):
        sim.step(sim.add_client(Client(f"c{n}", version=3, rebalance_ms=10_000)))
        sim.advance(2_000)
    assert sim.group.generation == 1
    first = sim.clients[0]
    assert first.generation == 1
    assert first.join_result is not None
    assert len(first.join_result.members) == 5  # those of the first ten seconds


def test_initial_rebalance_without_delay_ends_at_once() -> None:
    sim, client = (
        GroupSimulation(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0)),
        Client("c", version=3),
    )
    sim.step(sim.add_client(client))
    sim.advance(0)
    assert client.generation == 1


def test_rejoining_leader_starts_a_rebalance_and_a_rejoining_follower_does_not() -> None:
    leader, follower = Client("a"), Client("b")
    sim = stable(leader, follower)
    sim.join(follower)
    assert sim.state() is GroupState.stable
    assert follower.join_result is not None
    assert (follower.generation, follower.join_result.members) == (1, ())
    sim.join(leader)
    assert sim.state() is GroupState.preparing


def test_heartbeats_return_an_error_during_a_rebalance() -> None:
    leader, follower = Client("a"), Client("b")
    sim = stable(leader, follower)
    sim.join(leader)
    sim.send_heartbeat(follower)
    assert follower.errors[-1] is ErrorCode.rebalance_in_progress


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    leader, follower = (
        Client("a", rebalance_ms=20_000, session_ms=300_000),
        Client("b", session_ms=300_000, rebalance_ms=20_000),
    )
    sim = stable(leader, follower)
    follower.alive = False
    sim.join(leader)
    sim.advance(19_999)
    assert leader.phase == "joining"
    sim.advance(1)
    assert leader.generation == 2
    assert list(sim.group.members) == [leader.member_id]


def test_static_leader_that_does_not_rejoin_stays_a_member_but_not_the_leader() -> None:
    leader, follower = (
        Client("a", instance="i", session_ms=300_000, rebalance_ms=5_000),
        Client("b", rebalance_ms=5_000),
    )
    sim = stable(leader, follower)
    sim.step(sim.add_client(Client("c", version=3, rebalance_ms=5_000)))
    sim.join(follower)
    sim.advance(5_000)
    assert follower.is_leader
    assert sim.group.leader == follower.member_id
    assert leader.member_id in sim.group.members


def test_rebalance_continues_when_the_last_missing_member_leaves() -> None:
    first, second = Client("a"), Client("b")
    sim = stable(first, second)
    sim.join(first)
    assert first.phase == "joining"
    sim.leave(second)
    assert (first.generation, first.phase) == (2, "sync")


def test_member_that_fails_after_its_join_is_removed_after_its_session_timeout() -> None:
    first, second = Client("a", version=3), Client("b", version=3)
    sim = GroupSimulation()
    for client in (first, second):
        sim.step(sim.add_client(client))
    sim.advance(6_000)
    for _ in range(9):
        sim.advance(1_000)
        sim.send_heartbeat(first)
    assert second.member_id in sim.group.members
    sim.advance(1_000)
    assert second.member_id not in sim.group.members


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    first, second = Client("a", version=3, rebalance_ms=5_000), Client("b", version=3, rebalance_ms=5_000)
    sim = GroupSimulation()
    for client in (first, second):
        sim.step(sim.add_client(client))
    sim.advance(6_000)
    sim.sync(second)
    assert second.phase == "syncing"
    sim.advance(5_000)  # the leader has joined and does not sync
    assert second.errors[-1] is ErrorCode.rebalance_in_progress
    assert list(sim.group.members) == [second.member_id]
    assert sim.group.leader == second.member_id


def test_group_is_stable_when_the_assignment_is_written() -> None:
    sim, client = GroupSimulation(), Client("c", version=3)
    sim.step(sim.add_client(client))
    sim.advance(3_000)
    sim.sync(client)
    assert (sim.state(), client.phase) == (GroupState.completing, "syncing")
    sim.end_write()
    assert (sim.state(), client.phase) == (GroupState.stable, "member")


def test_failed_write_of_an_assignment_starts_another_rebalance() -> None:
    sim, client = GroupSimulation(), Client("c", version=3)
    sim.step(sim.add_client(client))
    sim.advance(3_000)
    sim.sync(client)
    sim.end_write(ErrorCode.coordinator_not_available)
    assert client.errors == [ErrorCode.coordinator_not_available]
    assert sim.state() is GroupState.preparing
    sim.settle()
    assert (sim.is_settled(), client.generation) == (True, 2)


def test_static_member_rejoins_without_a_rebalance() -> None:
    leader, static = Client("a"), Client("b", instance="i")
    sim = stable(leader, static)
    rejoined = sim.add_client(Client("b", instance="i"))
    static.alive = False
    sim.step(rejoined)
    assert (sim.state(), rejoined.phase) == (GroupState.stable, "joining")
    sim.end_write()
    assert rejoined.join_result is not None
    assert (rejoined.generation, rejoined.join_result.members, rejoined.join_result.skip_assignment) == (1, (), False)
    sim.sync(rejoined)
    assert rejoined.assignment == b"1:i"
    with pytest.raises(KafkaError) as fenced:
        sim.group.check_member(static.member_id, "i")
    assert fenced.value.code is ErrorCode.fenced_instance_id


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_rejoined_static_leader_does_not_assign_again(version: int, skips: bool) -> None:
    static, other = Client("a", instance="i"), Client("b")
    sim = stable(static, other)
    static.alive = False
    rejoined = sim.add_client(Client("a", instance="i", version=version))
    sim.step(rejoined)
    sim.end_write()
    assert rejoined.join_result is not None
    assert rejoined.join_result.skip_assignment is skips
    if skips:
        assert len(rejoined.join_result.members) == 2
    else:
        assert rejoined.join_result.leader == static.member_id, "the former id: the client must not act as leader"
    sim.sync(rejoined)
    assert rejoined.assignment == b"1:i"


def test_failed_write_of_a_static_member_restores_its_former_id() -> None:
    leader, static = Client("a"), Client("b", instance="i")
    sim = stable(leader, static)
    rejoined = sim.add_client(Client("b", instance="i"))
    sim.step(rejoined)
    sim.end_write(ErrorCode.not_coordinator)
    assert rejoined.errors == [ErrorCode.not_coordinator]
    assert sim.group.static_members == {"i": static.member_id}
    sim.send_heartbeat(static)
    assert static.phase == "member"


def test_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    static = Client("b", instance="i", protocols=(("range", b""), ("sticky", b"")))
    sim = stable(static)
    static.alive = False
    sim.step(sim.add_client(Client("b", instance="i", protocols=(("sticky", b""),))))
    assert sim.group.generation == 2
    assert sim.group.protocol_name == "sticky"


def test_static_members_are_removed_by_instance_id() -> None:
    sim = stable(Client("a", instance="i"), Client("b", instance="j"))
    codes, effects = leave_group(
        sim.group,
        [LeavingMember("", "i"), LeavingMember("", "nobody"), LeavingMember("x", "j")],
        sim.now(),
    )
    sim.apply_effects(effects)
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id]
    assert list(sim.group.static_members) == ["j"]


def test_group_is_empty_after_the_last_member_left() -> None:
    client = Client("c")
    sim = stable(client)
    assert sim.leave(client) == [ErrorCode.none]
    assert (sim.state(), sim.group.generation) == (GroupState.empty, 2)
    assert sim.writes[-1].metadata.members == ()
    assert sim.group.protocol_type == "consumer"
    assert sim.group.next_deadline_ms is not None, "a former deadline remains until it expires"
    sim.advance(600_000)
    assert sim.group.next_deadline_ms is None


def test_full_group_rejects_members() -> None:
    sim = stable(Client("a"), sim=GroupSimulation(GroupCoordinatorConfig(group_max_size=1)))
    late = sim.add_client(Client("b", version=3))
    sim.step(late)
    assert late.errors == [ErrorCode.group_max_size_reached]
    assert len(sim.group.members) == 1


def test_member_without_a_common_protocol_is_rejected() -> None:
    sim = stable(Client("a"))
    other = sim.add_client(Client("b", protocols=(("other", b""),)))
    sim.step(other)
    assert other.errors == [ErrorCode.inconsistent_group_protocol]


def test_protocol_with_most_votes_is_chosen_from_those_of_all_members() -> None:
    sticky_first, range_first = (("sticky", b""), ("range", b"")), (("range", b""), ("sticky", b""))
    sim = stable(
        Client("a", protocols=sticky_first),
        Client("b", protocols=range_first),
        Client("c", protocols=(("odd", b""), *range_first)),
    )
    assert sim.group.protocol_name == "range"


@pytest.mark.parametrize(
    ("generation", "protocol", "member", "error"),
    [
        (1, "range", "nobody", ErrorCode.unknown_member_id),
        (0, "range", None, ErrorCode.illegal_generation),
        (1, "sticky", None, ErrorCode.inconsistent_group_protocol),
        (1, "range", None, ErrorCode.none),
    ],
)
def test_sync_validates_member_generation_and_protocol(
    generation: int, protocol: str, member: str | None, error: ErrorCode
) -> None:
    client = Client("a")
    sim = stable(client)
    (effect,) = sync_group(
        sim.group, SyncRequest(member or client.member_id, None, generation, "consumer", protocol), "ticket"
    )
    assert effect.result.error is error  # type: ignore[union-attr]


def test_commits_are_accepted_from_members_of_the_generation_or_into_an_empty_group() -> None:
    group = ClassicGroup("g")
    group.check_commit("", None, -1)  # the group has no members
    client = Client("a", version=3)
    sim = GroupSimulation()
    sim.step(sim.add_client(client))
    sim.advance(3_000)

    def code(member: str, generation: int, instance: str | None = None) -> ErrorCode:
        try:
            sim.group.check_commit(member, instance, generation)
        except KafkaError as reason:
            return reason.code
        return ErrorCode.none

    assert code(client.member_id, 1) is ErrorCode.rebalance_in_progress
    sim.settle()
    assert code(client.member_id, 1) is ErrorCode.none
    assert code(client.member_id, 2) is ErrorCode.illegal_generation
    assert code("nobody", 1) is ErrorCode.unknown_member_id
    assert code("", -1) is ErrorCode.unknown_member_id
    assert code(client.member_id, 1, "i") is ErrorCode.unknown_member_id


def test_subscribed_topics_are_parsed() -> None:
    assert read_subscribed_topics(SUBSCRIPTION) == ["a", "bb"]
    group = stable(Client("a", protocols=(("range", SUBSCRIPTION),))).group
    assert group.is_subscribed_to("bb")
    assert not group.is_subscribed_to("c")


def test_invalid_subscription_counts_for_every_topic() -> None:
    group = stable(Client("a", protocols=(("range", b"\x00\x00\xff"),))).group
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("anything")


def test_group_is_restored_from_its_record() -> None:
    leader, static = Client("a"), Client("b", instance="i")
    sim = stable(leader, static)
    record = sim.written[-1].metadata
    restored = restore_group("g", sim.settings, record)
    assert restored.state is GroupState.stable
    assert restored.to_record({m.id: m.assignment for m in restored.members.values()}) == record
    assert (restored.leader, restored.static_members) == (leader.member_id, {"i": static.member_id})


def test_dead_group_rejects_members() -> None:
    group = ClassicGroup("g", state=GroupState.dead)
    sim = GroupSimulation()
    sim.group = group
    client = sim.add_client(Client("a"))
    sim.step(client)
    assert client.errors == [ErrorCode.coordinator_not_available]
    with pytest.raises(KafkaError):
        leave_group(group, [LeavingMember("x")], sim.now())
