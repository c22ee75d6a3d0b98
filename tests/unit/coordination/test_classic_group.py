"""What a group answers, state by state, as Kafka's does."""

import pytest

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState, parse_subscribed_topics, restore_group
from ottla_broker.coordination.effects import LeavingMember, SyncRequest
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.membership import leave_group, sync_group
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.coordination.clients import Client, World

SUBSCRIPTION = bytes.fromhex("00030000000200016100026262ffffffff00000000")  # topics a and bb, version 3


def stable(*clients: Client, world: World | None = None) -> World:
    """A world whose group is Stable with these members, joined in this order."""
    world = world or World()
    for client in clients:
        world.start(client)
        while client.doing == "join":
            world.step(client)
    world.settle()
    assert world.is_settled()
    return world


def test_a_dynamic_member_is_told_its_id_before_it_counts() -> None:
    world, client = World(), Client("c")
    world.step(world.start(client))
    assert client.errors == [ErrorCode.member_id_required]
    assert client.member_id.startswith("c-")
    assert (world.state(), world.group.members) == (GroupState.empty, {})
    assert list(world.group.pending_joins) == [client.member_id]
    world.step(client)
    assert list(world.group.members) == [client.member_id]
    assert not world.group.pending_joins


def test_a_member_id_that_nobody_comes_back_for_is_forgotten_after_the_session_timeout() -> None:
    world = World()
    world.step(world.start(Client("c", session_ms=8_000)))
    world.advance(7_999)
    assert world.group.pending_joins
    world.advance(1)
    assert not world.group.pending_joins
    assert world.group.next_deadline_ms is None


def test_older_clients_join_at_once() -> None:
    world, client = World(), Client("c", version=3)
    world.step(world.start(client))
    assert client.doing == "joining"
    assert len(world.group.members) == 1


def test_the_first_rebalance_waits_for_more_members_and_a_bit_longer_for_each() -> None:
    world, first, second = World(), Client("a", version=3), Client("b", version=3)
    world.step(world.start(first))
    world.advance(2_999)
    world.step(world.start(second))
    world.advance(1)
    assert world.state() is GroupState.preparing, "somebody came, so the delay begins again"
    world.advance(2_999)
    assert world.state() is GroupState.preparing
    world.advance(1)
    assert world.state() is GroupState.completing
    assert (first.generation, second.generation) == (1, 1)
    assert first.is_leader
    assert not second.is_leader
    assert first.told is not None
    assert [m.member_id for m in first.told.members] == [first.member_id, second.member_id]


def test_the_first_rebalance_ends_at_the_rebalance_timeout_however_many_come() -> None:
    world = World()
    for n in range(8):
        world.step(world.start(Client(f"c{n}", version=3, rebalance_ms=10_000)))
        world.advance(2_000)
    assert world.group.generation == 1
    world_of_first = world.clients[0]
    assert world_of_first.generation == 1
    assert world_of_first.told is not None
    assert len(world_of_first.told.members) == 5  # those of the first ten seconds


def test_without_a_delay_the_first_rebalance_ends_at_once() -> None:
    world, client = World(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0)), Client("c", version=3)
    world.step(world.start(client))
    world.advance(0)
    assert client.generation == 1


def test_a_leader_that_rejoins_a_stable_group_asks_for_a_rebalance_and_a_follower_does_not() -> None:
    leader, follower = Client("a"), Client("b")
    world = stable(leader, follower)
    world.join(follower)
    assert world.state() is GroupState.stable
    assert follower.told is not None
    assert (follower.generation, follower.told.members) == (1, ())
    world.join(leader)
    assert world.state() is GroupState.preparing


def test_heartbeats_tell_of_a_rebalance() -> None:
    leader, follower = Client("a"), Client("b")
    world = stable(leader, follower)
    world.join(leader)
    world.beat(follower)
    assert follower.errors[-1] is ErrorCode.rebalance_in_progress


def test_who_does_not_rejoin_in_time_is_out() -> None:
    leader, follower = (
        Client("a", rebalance_ms=20_000, session_ms=300_000),
        Client("b", session_ms=300_000, rebalance_ms=20_000),
    )
    world = stable(leader, follower)
    follower.alive = False
    world.join(leader)
    world.advance(19_999)
    assert leader.doing == "joining"
    world.advance(1)
    assert leader.generation == 2
    assert list(world.group.members) == [leader.member_id]


def test_a_static_leader_that_does_not_rejoin_stays_a_member_and_leads_no_more() -> None:
    leader, follower = (
        Client("a", instance="i", session_ms=300_000, rebalance_ms=5_000),
        Client("b", rebalance_ms=5_000),
    )
    world = stable(leader, follower)
    world.step(world.start(Client("c", version=3, rebalance_ms=5_000)))
    world.join(follower)
    world.advance(5_000)
    assert follower.is_leader
    assert world.group.leader == follower.member_id
    assert leader.member_id in world.group.members


def test_when_the_last_one_waited_for_leaves_the_others_go_on() -> None:
    first, second = Client("a"), Client("b")
    world = stable(first, second)
    world.join(first)
    assert first.doing == "joining"
    world.leave(second)
    assert (first.generation, first.doing) == (2, "sync")


def test_who_dies_after_its_join_was_answered_is_out_after_its_session() -> None:
    first, second = Client("a", version=3), Client("b", version=3)
    world = World()
    for client in (first, second):
        world.step(world.start(client))
    world.advance(6_000)
    for _ in range(9):
        world.advance(1_000)
        world.beat(first)
    assert second.member_id in world.group.members
    world.advance(1_000)
    assert second.member_id not in world.group.members


def test_who_does_not_sync_in_time_is_out() -> None:
    first, second = Client("a", version=3, rebalance_ms=5_000), Client("b", version=3, rebalance_ms=5_000)
    world = World()
    for client in (first, second):
        world.step(world.start(client))
    world.advance(6_000)
    world.sync(second)
    assert second.doing == "syncing"
    world.advance(5_000)  # the leader got its answer and went silent
    assert second.errors[-1] is ErrorCode.rebalance_in_progress
    assert list(world.group.members) == [second.member_id]
    assert world.group.leader == second.member_id


def test_an_assignment_counts_when_it_is_written() -> None:
    world, client = World(), Client("c", version=3)
    world.step(world.start(client))
    world.advance(3_000)
    world.sync(client)
    assert (world.state(), client.doing) == (GroupState.completing, "syncing")
    world.end_write()
    assert (world.state(), client.doing) == (GroupState.stable, "member")


def test_an_assignment_that_could_not_be_written_means_another_rebalance() -> None:
    world, client = World(), Client("c", version=3)
    world.step(world.start(client))
    world.advance(3_000)
    world.sync(client)
    world.end_write(ErrorCode.coordinator_not_available)
    assert client.errors == [ErrorCode.coordinator_not_available]
    assert world.state() is GroupState.preparing
    world.settle()
    assert (world.is_settled(), client.generation) == (True, 2)


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    leader, static = Client("a"), Client("b", instance="i")
    world = stable(leader, static)
    again = world.start(Client("b", instance="i"))
    static.alive = False
    world.step(again)
    assert (world.state(), again.doing) == (GroupState.stable, "joining")
    world.end_write()
    assert again.told is not None
    assert (again.generation, again.told.members, again.told.skip_assignment) == (1, (), False)
    world.sync(again)
    assert again.assignment == b"1:i"
    with pytest.raises(KafkaError) as fenced:
        world.group.check_member(static.member_id, "i")
    assert fenced.value.code is ErrorCode.fenced_instance_id


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_a_static_leader_that_comes_back_does_not_assign_again(version: int, skips: bool) -> None:
    static, other = Client("a", instance="i"), Client("b")
    world = stable(static, other)
    static.alive = False
    again = world.start(Client("a", instance="i", version=version))
    world.step(again)
    world.end_write()
    assert again.told is not None
    assert again.told.skip_assignment is skips
    if skips:
        assert len(again.told.members) == 2
    else:
        assert again.told.leader == static.member_id, "the old id leads, so that it does not take itself for the leader"
    world.sync(again)
    assert again.assignment == b"1:i"


def test_a_static_member_that_could_not_be_written_is_taken_back() -> None:
    leader, static = Client("a"), Client("b", instance="i")
    world = stable(leader, static)
    again = world.start(Client("b", instance="i"))
    world.step(again)
    world.end_write(ErrorCode.not_coordinator)
    assert again.errors == [ErrorCode.not_coordinator]
    assert world.group.static_members == {"i": static.member_id}
    world.beat(static)
    assert static.doing == "member"


def test_a_static_member_that_changes_the_protocol_makes_a_rebalance() -> None:
    static = Client("b", instance="i", protocols=(("range", b""), ("sticky", b"")))
    world = stable(static)
    static.alive = False
    world.step(world.start(Client("b", instance="i", protocols=(("sticky", b""),))))
    assert world.group.generation == 2
    assert world.group.protocol_name == "sticky"


def test_an_administrator_removes_static_members_by_instance() -> None:
    world = stable(Client("a", instance="i"), Client("b", instance="j"))
    codes, effects = leave_group(
        world.group,
        [LeavingMember("", "i"), LeavingMember("", "nobody"), LeavingMember("x", "j")],
        world.now(),
    )
    world.run(effects)
    assert codes == [ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id]
    assert list(world.group.static_members) == ["j"]


def test_the_last_to_leave_empties_the_group() -> None:
    client = Client("c")
    world = stable(client)
    assert world.leave(client) == [ErrorCode.none]
    assert (world.state(), world.group.generation) == (GroupState.empty, 2)
    assert world.writes[-1].metadata.members == ()
    assert world.group.protocol_type == "consumer"
    assert world.group.next_deadline_ms is not None, "an old deadline may remain"
    world.advance(600_000)
    assert world.group.next_deadline_ms is None


def test_a_full_group_turns_members_away() -> None:
    world = stable(Client("a"), world=World(GroupCoordinatorConfig(group_max_size=1)))
    late = world.start(Client("b", version=3))
    world.step(late)
    assert late.errors == [ErrorCode.group_max_size_reached]
    assert len(world.group.members) == 1


def test_protocols_must_have_one_in_common() -> None:
    world = stable(Client("a"))
    odd = world.start(Client("b", protocols=(("other", b""),)))
    world.step(odd)
    assert odd.errors == [ErrorCode.inconsistent_group_protocol]


def test_the_protocol_with_most_votes_is_chosen_among_those_all_support() -> None:
    sticky_first, range_first = (("sticky", b""), ("range", b"")), (("range", b""), ("sticky", b""))
    world = stable(
        Client("a", protocols=sticky_first),
        Client("b", protocols=range_first),
        Client("c", protocols=(("odd", b""), *range_first)),
    )
    assert world.group.protocol_name == "range"


@pytest.mark.parametrize(
    ("generation", "protocol", "member", "error"),
    [
        (1, "range", "nobody", ErrorCode.unknown_member_id),
        (0, "range", None, ErrorCode.illegal_generation),
        (1, "sticky", None, ErrorCode.inconsistent_group_protocol),
        (1, "range", None, ErrorCode.none),
    ],
)
def test_what_sync_checks(generation: int, protocol: str, member: str | None, error: ErrorCode) -> None:
    client = Client("a")
    world = stable(client)
    (answer,) = sync_group(
        world.group, SyncRequest(member or client.member_id, None, generation, "consumer", protocol), "ticket"
    )
    assert answer.result.error is error  # type: ignore[union-attr]


def test_who_may_commit() -> None:
    group = ClassicGroup("g")
    group.check_commit("", None, -1)  # nobody is there: anybody may
    client = Client("a", version=3)
    world = World()
    world.step(world.start(client))
    world.advance(3_000)

    def code(member: str, generation: int, instance: str | None = None) -> ErrorCode:
        try:
            world.group.check_commit(member, instance, generation)
        except KafkaError as reason:
            return reason.code
        return ErrorCode.none

    assert code(client.member_id, 1) is ErrorCode.rebalance_in_progress
    world.settle()
    assert code(client.member_id, 1) is ErrorCode.none
    assert code(client.member_id, 2) is ErrorCode.illegal_generation
    assert code("nobody", 1) is ErrorCode.unknown_member_id
    assert code("", -1) is ErrorCode.unknown_member_id
    assert code(client.member_id, 1, "i") is ErrorCode.unknown_member_id


def test_topics_of_a_subscription() -> None:
    assert parse_subscribed_topics(SUBSCRIPTION) == ["a", "bb"]
    group = stable(Client("a", protocols=(("range", SUBSCRIPTION),))).group
    assert group.is_subscribed_to("bb")
    assert not group.is_subscribed_to("c")


def test_a_subscription_that_cannot_be_read_may_mean_any_topic() -> None:
    group = stable(Client("a", protocols=(("range", b"\x00\x00\xff"),))).group
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("anything")


def test_a_group_comes_back_from_its_record() -> None:
    leader, static = Client("a"), Client("b", instance="i")
    world = stable(leader, static)
    record = world.written[-1].metadata
    again = restore_group("g", world.settings, record)
    assert again.state is GroupState.stable
    assert again.to_record({m.id: m.assignment for m in again.members.values()}) == record
    assert (again.leader, again.static_members) == (leader.member_id, {"i": static.member_id})


def test_dead_groups_send_members_elsewhere() -> None:
    group = ClassicGroup("g", state=GroupState.dead)
    world = World()
    world.group = group
    client = world.start(Client("a"))
    world.step(client)
    assert client.errors == [ErrorCode.coordinator_not_available]
    with pytest.raises(KafkaError):
        leave_group(group, [LeavingMember("x")], world.now())
