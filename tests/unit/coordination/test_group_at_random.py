"""Members come, go, die, come back and dawdle in any order, and writes fail: a group keeps its promises.

- One member of a generation is asked to assign, and it is a member.
- A generation's number never falls.
- Whoever is told an assignment is told the one the leader made for it (`clients.World` checks each).
- Nobody waits for ever: once clients behave, everybody alive is in one stable generation, and no request is left
unanswered.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla_broker.coordination.classic_group import GroupState
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode
from tests.unit.coordination.clients import Client, World

PROTOCOLS = st.sampled_from(
    [
        (("range", b"a"),),
        (("range", b"b"),),
        (("sticky", b"a"), ("range", b"a")),
        (("range", b"a"), ("sticky", b"a")),
    ]
)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=3_000, group_max_size=5))
        self.generation = 0
        self.names = 0

    def someone(self, pick: int, *doing: str) -> Client | None:
        found = [c for c in self.world.living() if not doing or c.doing in doing]
        return found[pick % len(found)] if found else None

    @rule(version=st.sampled_from([3, 4, 9]), protocols=PROTOCOLS, session_ms=st.sampled_from([6_000, 30_000]))
    def a_dynamic_member_starts(self, version: int, protocols: tuple[tuple[str, bytes], ...], session_ms: int) -> None:
        self.names += 1
        client = Client(f"c{self.names}", protocols=protocols, session_ms=session_ms, version=version)
        self.world.step(self.world.start(client))

    @rule(instance=st.sampled_from("xyz"), version=st.sampled_from([5, 9]), protocols=PROTOCOLS)
    def a_static_member_starts_or_starts_again(
        self, instance: str, version: int, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        for client in self.world.living():
            if client.instance == instance:
                client.alive = False
        self.names += 1
        self.world.step(
            self.world.start(Client(f"c{self.names}", instance=instance, protocols=protocols, version=version))
        )

    @rule(pick=st.integers(0, 9), times=st.integers(1, 4))
    def somebody_goes_on(self, pick: int, times: int) -> None:
        for _ in range(times):
            if (client := self.someone(pick)) is not None:
                self.world.step(client)

    @rule()
    def everybody_goes_on(self) -> None:
        for client in self.world.living():
            self.world.step(client)

    @rule(pick=st.integers(0, 9))
    def somebody_rejoins(self, pick: int) -> None:
        if (client := self.someone(pick, "member", "sync")) is not None:
            self.world.join(client)

    @rule(pick=st.integers(0, 9), protocols=PROTOCOLS)
    def somebody_changes_what_it_supports(self, pick: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        if (client := self.someone(pick, "member")) is not None:
            client.protocols = protocols
            self.world.join(client)

    @rule(pick=st.integers(0, 9))
    def somebody_asks_twice(self, pick: int) -> None:
        if (client := self.someone(pick, "joining", "syncing")) is not None and client.member_id:
            (self.world.join if client.doing == "joining" else self.world.sync)(client)

    @rule(pick=st.integers(0, 9))
    def somebody_leaves(self, pick: int) -> None:
        if (client := self.someone(pick)) is not None and client.member_id:
            self.world.leave(client)

    @rule(pick=st.integers(0, 9))
    def somebody_dies(self, pick: int) -> None:
        if (client := self.someone(pick)) is not None:
            client.alive = False

    @rule(ms=st.sampled_from([1, 500, 3_000, 7_000, 61_000, 301_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @precondition(lambda self: self.world.writes)
    @rule(error=st.sampled_from([ErrorCode.none, ErrorCode.none, ErrorCode.coordinator_not_available]))
    def a_write_ends(self, error: ErrorCode) -> None:
        self.world.end_write(error)

    @invariant()
    def generations_never_fall(self) -> None:
        assert self.world.group.generation >= self.generation
        self.generation = self.world.group.generation

    @invariant()
    def one_leader(self) -> None:
        group = self.world.group
        assert (group.leader in group.members) if group.members else group.leader is None
        assert all(len(asked) == 1 for asked in self.world.leaders.values())

    @invariant()
    def counts_are_right(self) -> None:
        group = self.world.group
        assert group.waiting_joins == sum(member.join_request is not None for member in group.members.values())
        names = [name for member in group.members.values() for name, _ in member.protocols]
        assert group.protocol_support == {name: names.count(name) for name in set(names)}
        statics = {m.group_instance_id: m.id for m in group.members.values() if m.group_instance_id is not None}
        assert group.static_members == statics
        assert len(group.members) <= 5 + 3  # statics come back above the limit only under names they had
        assert all(id == member.id for id, member in group.members.items())

    @invariant()
    def somebody_will_answer(self) -> None:
        group, world = self.world.group, self.world
        tickets = {m.join_request for m in group.members.values()} | {m.sync_request for m in group.members.values()}
        assert set(world.waiting) == tickets - {None}
        if world.waiting:
            assert group.next_deadline_ms is not None or world.writes  # a write always ends, and tells the group
        if group.state is GroupState.preparing:
            assert group.join_deadline_ms is not None
        if any(member.sync_request is not None for member in group.members.values()):
            assert group.state is GroupState.completing

    def teardown(self) -> None:
        self.world.settle()
        assert self.world.is_settled(), (self.world.group, self.world.clients)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
