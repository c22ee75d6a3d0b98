"""Clients of a classic group without I/O and on a simulated clock. They follow the protocol as the
Java client does, and the test decides when each takes its next step.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from ottla_broker.coordination import classic_generations
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.classic_membership import heartbeat, join_group, leave_group, sync_group
from ottla_broker.coordination.effects import (
    CompleteRequest,
    Effect,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
    Timestamps,
    WriteGroupMetadata,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.wire.errors import ErrorCode, KafkaError

RANGE = (("range", b"topics"),)


@dataclass(eq=False)
class Client:
    """`phase`: the request that the client sends at its next step, or the response it waits for."""

    name: str
    instance: str | None = None
    protocols: tuple[tuple[str, bytes], ...] = RANGE
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    version: int = 9
    alive: bool = True
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    join_result: JoinResult | None = None  # the last successful one
    phase: Literal["join", "joining", "sync", "syncing", "member", "nothing"] = "join"
    assignment: bytes | None = None
    errors: list[ErrorCode] = field(default_factory=list)

    def owner(self) -> str:
        """Name in assignments: a static member keeps its assignment when its member id changes."""
        return self.instance or self.member_id

    def receive(self, result: JoinResult | SyncResult) -> None:
        if result.error is not ErrorCode.none:
            self.handle_error(result)
        elif isinstance(result, JoinResult):
            self.join_result, self.member_id, self.generation = result, result.member_id, result.generation
            self.is_leader = result.leader == result.member_id
            self.phase = "sync"
        else:
            self.assignment, self.phase = result.assignment, "member"

    def handle_error(self, result: JoinResult | SyncResult) -> None:
        self.errors.append(result.error)
        self.phase = "join"
        if result.error in (
            ErrorCode.fenced_instance_id,
            ErrorCode.group_max_size_reached,
            ErrorCode.inconsistent_group_protocol,
        ):
            self.phase, self.alive = "nothing", False
        elif result.error is ErrorCode.member_id_required and isinstance(result, JoinResult):
            self.member_id = result.member_id
        elif result.error is ErrorCode.unknown_member_id:
            self.member_id = ""


class GroupSimulation:
    """A group, its clients, its clock, and its writes, which complete when the test calls
    `end_write`.
    """

    def __init__(self, settings: GroupCoordinatorConfig | None = None) -> None:
        self.settings = settings or GroupCoordinatorConfig(group_initial_rebalance_delay_ms=3_000)
        self.group = ClassicGroup("g", self.settings)
        self.ms = 0
        self.clients: list[Client] = []
        self.writes: deque[WriteGroupMetadata] = deque()
        self.written: list[WriteGroupMetadata] = []
        self.waiting: dict[int, Client] = {}  # by the id of their request
        self._request_ids = 0
        self.leaders: dict[int, set[str]] = {}  # generation → members that are to assign partitions

    def state(self) -> GroupState:
        return self.group.state

    def now(self) -> Timestamps:
        return Timestamps(self.ms, 1_700_000_000_000 + self.ms)

    def add_request(self, client: Client) -> int:
        self._request_ids += 1
        self.waiting[self._request_ids] = client
        return self._request_ids

    def apply_effects(self, effects: list[Effect]) -> None:
        """Starts writes, and completes requests."""
        for effect in effects:
            if isinstance(effect, WriteGroupMetadata):
                self.writes.append(effect)
                continue
            assert isinstance(effect, CompleteRequest) and isinstance(effect.request, int)
            self._deliver(self.waiting.pop(effect.request), effect.result)

    def _deliver(self, client: Client, result: JoinResult | SyncResult) -> None:
        """Raises AssertionError if a member gets another assignment than its leader made for it."""
        if (
            isinstance(result, JoinResult)
            and result.error is ErrorCode.none
            and result.members
            and not result.skip_assignment
        ):
            self.leaders.setdefault(result.generation, set()).add(result.member_id)
        if not client.alive:
            return
        client.receive(result)
        if isinstance(result, SyncResult) and result.error is ErrorCode.none:
            assert result.assignment == f"{client.generation}:{client.owner()}".encode(), (client, result)

    # --- clients

    def add_client(self, client: Client) -> Client:
        self.clients.append(client)
        return client

    def step(self, client: Client) -> None:
        """Lets the client send the request of its phase, if it does not wait for a response."""
        if not client.alive:
            return
        if client.phase == "join":
            self.join(client)
        elif client.phase == "sync":
            self.sync(client)
        elif client.phase == "member":
            self.send_heartbeat(client)

    def join(self, client: Client) -> None:
        client.phase = "joining"
        request = JoinRequest(
            client.member_id,
            client.instance,
            client.name,
            "/127.0.0.1",
            client.rebalance_ms,
            client.session_ms,
            "consumer",
            client.protocols,
            unique_suffix=str(self._request_ids),
            needs_member_id=client.version >= 4,
            may_skip_assignment=client.version >= 9,
        )
        self.apply_effects(join_group(self.group, request, self.add_request(client), self.now()))

    def sync(self, client: Client) -> None:
        client.phase = "syncing"
        joined = client.join_result
        assert joined is not None
        assignments = {}
        if client.is_leader and not joined.skip_assignment:
            assignments = {
                m.member_id: f"{joined.generation}:{m.group_instance_id or m.member_id}".encode()
                for m in joined.members
            }
        request = SyncRequest(
            client.member_id,
            client.instance,
            client.generation,
            joined.protocol_type,
            joined.protocol_name,
            assignments,
        )
        self.apply_effects(sync_group(self.group, request, self.add_request(client)))

    def send_heartbeat(self, client: Client) -> None:
        try:
            code = heartbeat(self.group, client.member_id, client.instance, client.generation, self.now())
        except KafkaError as reason:
            code = reason.code
        if code is not ErrorCode.none:
            client.handle_error(SyncResult(code))

    def leave(self, client: Client) -> list[ErrorCode]:
        client.alive = False
        codes, effects = leave_group(self.group, [LeavingMember(client.member_id, client.instance)], self.now())
        self.apply_effects(effects)
        return codes

    # --- time and the log

    def advance(self, ms: int) -> None:
        """Lets time pass. The group handles each deadline when it comes."""
        end_ms = self.ms + ms
        while self.group.next_deadline_ms is not None and self.group.next_deadline_ms <= end_ms:
            self.ms = max(self.ms, self.group.next_deadline_ms)
            self.apply_effects(classic_generations.expire_deadlines(self.group, self.now()))
            assert self.group.next_deadline_ms is None or self.group.next_deadline_ms > self.ms or self._is_due(), (
                "an expired deadline is set again"
            )
        self.ms = end_ms

    def _is_due(self) -> bool:
        return self.group.join_deadline_ms == self.ms  # a rebalance that began at this time and has no delay

    def end_write(self, error: ErrorCode = ErrorCode.none) -> None:
        """Completes the oldest write, with an error or without."""
        write = self.writes.popleft()
        if error is ErrorCode.none:
            self.written.append(write)
        self.apply_effects(classic_generations.on_write_completed(self.group, write.purpose, error, self.now()))

    def settle(self) -> None:
        """Completes writes, steps all clients and advances the time until the group is stable, for
        at most seven minutes.
        """
        for _ in range(420):
            while self.writes:
                self.end_write()
            for client in self.clients:
                self.step(client)
            if self.is_settled() and not self.writes:
                return
            self.advance(1_000)

    def live_clients(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    def is_settled(self) -> bool:
        """True if the group is stable with all live clients, and each has its assignment; without
        live clients, if it is empty."""
        live = self.live_clients()
        if self.waiting or self.group.pending_joins:
            return False
        if set(self.group.members) != {client.member_id for client in live}:
            return False
        if not live:
            return self.group.state is GroupState.empty
        return self.group.state is GroupState.stable and all(
            client.phase == "member" and client.generation == self.group.generation for client in live
        )
