"""A group with random joins, failures, delays and failed writes.

Invariants:
- Each generation has one leader, and it is a member.
- The generation never decreases.
- Each member gets the assignment that the leader made for it (checked by `GroupSimulation`).
- Each waiting request has a deadline or a write that completes it. When clients behave, all live
  clients reach one stable generation.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla_broker.coordination.classic_group import GroupState
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode
from tests.unit.coordination.group_simulation import Client, GroupSimulation

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
        self.sim = GroupSimulation(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=3_000, group_max_size=5))
        self.generation = 0
        self.client_count = 0

    def pick_client(self, pick: int, *phases: str) -> Client | None:
        found = [c for c in self.sim.live_clients() if not phases or c.phase in phases]
        return found[pick % len(found)] if found else None

    @rule(version=st.sampled_from([3, 4, 9]), protocols=PROTOCOLS, session_ms=st.sampled_from([6_000, 30_000]))
    def start_dynamic_member(self, version: int, protocols: tuple[tuple[str, bytes], ...], session_ms: int) -> None:
        self.client_count += 1
        client = Client(f"c{self.client_count}", protocols=protocols, session_ms=session_ms, version=version)
        self.sim.step(self.sim.add_client(client))

    @rule(instance=st.sampled_from("xyz"), version=st.sampled_from([5, 9]), protocols=PROTOCOLS)
    def start_or_restart_static_member(
        self, instance: str, version: int, protocols: tuple[tuple[str, bytes], ...]
    ) -> None:
        for client in self.sim.live_clients():
            if client.instance == instance:
                client.alive = False
        self.client_count += 1
        self.sim.step(
            self.sim.add_client(
                Client(f"c{self.client_count}", instance=instance, protocols=protocols, version=version)
            )
        )

    @rule(pick=st.integers(0, 9), times=st.integers(1, 4))
    def step_client(self, pick: int, times: int) -> None:
        for _ in range(times):
            if (client := self.pick_client(pick)) is not None:
                self.sim.step(client)

    @rule()
    def step_all_clients(self) -> None:
        for client in self.sim.live_clients():
            self.sim.step(client)

    @rule(pick=st.integers(0, 9))
    def rejoin(self, pick: int) -> None:
        if (client := self.pick_client(pick, "member", "sync")) is not None:
            self.sim.join(client)

    @rule(pick=st.integers(0, 9), protocols=PROTOCOLS)
    def change_protocols(self, pick: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        if (client := self.pick_client(pick, "member")) is not None:
            client.protocols = protocols
            self.sim.join(client)

    @rule(pick=st.integers(0, 9))
    def repeat_request(self, pick: int) -> None:
        if (client := self.pick_client(pick, "joining", "syncing")) is not None and client.member_id:
            (self.sim.join if client.phase == "joining" else self.sim.sync)(client)

    @rule(pick=st.integers(0, 9))
    def leave(self, pick: int) -> None:
        if (client := self.pick_client(pick)) is not None and client.member_id:
            self.sim.leave(client)

    @rule(pick=st.integers(0, 9))
    def kill_client(self, pick: int) -> None:
        if (client := self.pick_client(pick)) is not None:
            client.alive = False

    @rule(ms=st.sampled_from([1, 500, 3_000, 7_000, 61_000, 301_000]))
    def advance_time(self, ms: int) -> None:
        self.sim.advance(ms)

    @precondition(lambda self: self.sim.writes)
    @rule(error=st.sampled_from([ErrorCode.none, ErrorCode.none, ErrorCode.coordinator_not_available]))
    def end_write(self, error: ErrorCode) -> None:
        self.sim.end_write(error)

    @invariant()
    def generation_never_decreases(self) -> None:
        assert self.sim.group.generation >= self.generation
        self.generation = self.sim.group.generation

    @invariant()
    def generation_has_one_leader(self) -> None:
        group = self.sim.group
        assert (group.leader in group.members) if group.members else group.leader is None
        assert all(len(members) == 1 for members in self.sim.leaders.values())

    @invariant()
    def counts_are_consistent(self) -> None:
        group = self.sim.group
        assert group.waiting_joins == sum(member.join_request is not None for member in group.members.values())
        names = [name for member in group.members.values() for name, _ in member.protocols]
        assert group.protocol_support == {name: names.count(name) for name in set(names)}
        statics = {m.group_instance_id: m.id for m in group.members.values() if m.group_instance_id is not None}
        assert group.static_members == statics
        assert len(group.members) <= 5 + 3  # above the limit, static members rejoin only with their instance ids
        assert all(key == member.id for key, member in group.members.items())

    @invariant()
    def waiting_requests_are_completed(self) -> None:
        group, sim = self.sim.group, self.sim
        requests = {m.join_request for m in group.members.values()} | {m.sync_request for m in group.members.values()}
        assert set(sim.waiting) == requests - {None}
        if sim.waiting:
            assert group.next_deadline_ms is not None or sim.writes  # each write ends and is reported to the group
        if group.state is GroupState.preparing:
            assert group.join_deadline_ms is not None
        if any(member.sync_request is not None for member in group.members.values()):
            assert group.state is GroupState.completing

    def teardown(self) -> None:
        self.sim.settle()
        assert self.sim.is_settled(), (self.sim.group, self.sim.clients)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
