"""A member of a consumer group that consumes everything and commits what it has consumed.

After a commit with an unknown outcome it leaves the group, so that the commit cannot be applied
later and undo another one.

It speaks the protocol that Kafka's consumers embed in the classic one, so that its group may become
a consumer group. It gives up everything before it joins again.
"""

import asyncio
import struct
from math import inf
from random import Random
from typing import Any

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v3.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from ottla_broker.coordination.consumer_protocol import encode_assignment, read_assignment
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.records import iter_records
from tests.sim.client import FAILURES, SimulatedClient, Workload
from tests.sim.history import Commit, TopicPartition
from tests.sim.processes import SimulatedProcess

HEARTBEAT_S = 0.5
SESSION_S = 6.0
REBALANCE_S = 3.0
LATEST_OFFSET_ONE_IN = 20  # fetches per ListOffsets, on average
PARTITION_CHECK_S = 3.0  # how often the group's leader checks for new partitions


class Member(SimulatedClient):
    """`rack` is the rack whose followers it prefers; empty: it fetches from leaders. `leaves_at_s`:
    loop time at which it leaves the group.
    """

    def __init__(
        self, workload: Workload, process: SimulatedProcess, random: Random, group: str, topic: str, rack: str
    ) -> None:
        super().__init__(workload, process, random)
        self._group = group
        self._topic = topic
        self._rack = rack
        self._session_s = SESSION_S
        self._id = ""
        self._partition_count_as_leader: int | None = None  # None: it is not the group's leader
        self._preferred: dict[TopicPartition, int] = {}
        self._assigned: list[TopicPartition] = []
        self.leaves_at_s = inf

    @property
    def is_leaving(self) -> bool:
        return self.stopping or self.loop.time() >= self.leaves_at_s

    async def run(self) -> None:
        await self.retry_until_done(
            f"member of {self._group}", self._join_and_consume, is_wanted=lambda: not self.is_leaving
        )

    async def _join_and_consume(self, client: Client) -> bool:
        """One generation of the member: it returns False when it has to join again, and True when
        it has left the group or the run is over. Raises what `FAILURES` lists, after leaving the
        group."""
        try:
            generation, mine = await self._join(client)
            positions = {tp: max(offset, 0) for tp, offset in (await self._positions(client, mine)).items()}
            uncommitted = 0
            beat_at, check_at = 0.0, self.loop.time() + PARTITION_CHECK_S
            while not self.is_leaving:
                for tp in positions:
                    uncommitted += await self._read(client, tp, positions)
                if uncommitted and self.random.randrange(3) == 0:
                    await self._commit(client, generation, positions)
                    uncommitted = 0
                if not positions:
                    await asyncio.sleep(0.5)
                if self.loop.time() < beat_at:
                    continue
                beat_at = self.loop.time() + HEARTBEAT_S
                if (code := await self._heartbeat(client, generation)) is not ErrorCode.none:
                    if code is ErrorCode.rebalance_in_progress:
                        if uncommitted:
                            await self._commit(client, generation, positions)
                        return False
                    raise KafkaError(code, "Heartbeat")
                if self._partition_count_as_leader is not None and self.loop.time() >= check_at:
                    check_at = self.loop.time() + PARTITION_CHECK_S
                    if await self._count_partitions(client) > self._partition_count_as_leader:
                        return False  # joining again starts a rebalance
        except FAILURES:
            left, self._id = self._id, ""
            await self._leave(client, left)
            self.forget_coordinator(self._group)
            raise
        if not self.stopping:
            await self._leave(client, self._id)
        return True

    def _give_up_all(self, member: str) -> None:
        for tp in self._assigned:
            self.workload.history.remove_owner(self._group, tp, member)
        self._assigned = []

    def _record_owned(self, sent_at_s: float) -> None:
        """What it owns counts as given up when its heartbeats have failed for a session, or for as
        long as a rebalance may take if that is shorter.
        """
        until_s = sent_at_s + min(self._session_s, REBALANCE_S)
        for tp in self._assigned:
            self.workload.history.record_owner(self._group, tp, self._id, self.loop.time(), until_s)

    async def _positions(self, client: Client, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return await self.committed_offsets(client, self._group, topic_partitions) if topic_partitions else {}

    async def _send_to_group_coordinator(self, client: Client, request: Any) -> Any:
        return await self.send_to_coordinator(client, self._group, request)

    async def _count_partitions(self, client: Client) -> int:
        (topic,) = (await self.metadata(client, [self._topic])).topics
        return len(topic.partitions)

    async def _join(self, client: Client) -> tuple[int, list[TopicPartition]]:
        self._give_up_all(self._id)
        while True:
            request = JoinGroupRequest(
                group_id=GroupId(self._group),
                session_timeout=to_timedelta_field(self._session_s),
                rebalance_timeout=to_timedelta_field(REBALANCE_S),
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=_encode_subscription(self._topic)),),
            )
            joined = await self._send_to_group_coordinator(client, request)
            if joined.error_code is ErrorCode.member_id_required:
                self._id = joined.member_id
                continue
            raise_for_error(joined.error_code, "JoinGroup")
            break
        self._id = joined.member_id
        self._partition_count_as_leader = None
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == self._id:
            count = self._partition_count_as_leader = await self._count_partitions(client)
            members = sorted(member.member_id for member in joined.members)
            assignments = tuple(
                SyncGroupRequestAssignment(
                    member_id=member,
                    assignment=encode_assignment({self._topic: frozenset(range(at, count, len(members)))}, 1),
                )
                for at, member in enumerate(members)
            )
        sent_at_s = self.loop.time()
        synced = await self._send_to_group_coordinator(
            client,
            SyncGroupRequest(
                group_id=GroupId(self._group),
                generation_id=joined.generation_id,
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
        )
        raise_for_error(synced.error_code, "SyncGroup")
        assigned_topics = read_assignment(synced.assignment).assigned
        mine = [(one.topic, partition) for one in assigned_topics for partition in one.partitions]
        self._assigned = mine
        self._record_owned(sent_at_s)
        self.workload.trace.add_line(
            f"is in {self._group}, generation {joined.generation_id}, with {[p for _, p in mine]}"
        )
        return int(joined.generation_id), mine

    async def _read(self, client: Client, tp: TopicPartition, positions: dict[TopicPartition, int]) -> int:
        broker = self._preferred.pop(tp, None)
        try:
            if self.random.randrange(LATEST_OFFSET_ONE_IN) == 0:
                await self.latest_offset(client, tp)
            fetched = await self.fetch(client, tp, positions[tp], rack=self._rack, broker=broker)
        except FAILURES as reason:  # the member stays in the group: another leader is elected soon
            self.record_failure(f"fetch of {self._group}", reason)
            await self.pause()
            return 0
        if fetched.preferred >= 0:
            self._preferred[tp] = fetched.preferred
        elif broker is not None and fetched.records:
            self._preferred[tp] = broker  # as long as it has records; then the leader again
        history, count = self.workload.history, 0
        for header, record in iter_records(fetched.records):
            if record.offset >= positions[tp] and not header.is_control:
                history.record_consumed(self._group, tp, record.offset, record.value or b"")
                count += 1
                if -1 < fetched.high_watermark <= record.offset:
                    self.record_violation(
                        f"read {tp} offset {record.offset} above the high watermark {fetched.high_watermark}"
                    )
            if record.offset + 1 == header.next_offset:
                positions[tp] = max(positions[tp], header.next_offset)
                self.learn_epoch(tp, header.leader_epoch)
        return count

    async def _commit(self, client: Client, generation: int, positions: dict[TopicPartition, int]) -> None:
        wanted = dict(positions)
        request = OffsetCommitRequest(
            group_id=GroupId(self._group),
            generation_id_or_member_epoch=i32(generation),
            member_id=self._id,
            group_instance_id=None,
            topics=(
                OffsetCommitRequestTopic(
                    name=TopicName(self._topic),
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=i32(tp[1]),
                            committed_offset=i64(offset),
                            committed_leader_epoch=i32(self._epochs.get(tp, -1)),
                            committed_metadata="",
                        )
                        for tp, offset in wanted.items()
                    ),
                ),
            ),
        )
        answer = await self._send_to_group_coordinator(client, request)
        for partition in answer.topics[0].partitions:
            raise_for_error(partition.error_code, "OffsetCommit")
            tp = (self._topic, int(partition.partition_index))
            self.workload.history.record_commit(Commit(self._group, tp, wanted[tp], self.loop.time()))

    async def _heartbeat(self, client: Client, generation: int) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GroupId(self._group), generation_id=i32(generation), member_id=self._id, group_instance_id=None
        )
        sent_at_s = self.loop.time()
        code: ErrorCode = (await self._send_to_group_coordinator(client, request)).error_code
        if code is ErrorCode.none:
            self._record_owned(sent_at_s)
        return code

    async def _leave(self, client: Client, member: str) -> None:
        """Leaves the group if the coordinator can be reached."""
        self._give_up_all(member)
        try:
            async with asyncio.timeout(0.5):
                who = MemberIdentity(member_id=member, group_instance_id=None)
                await self._send_to_group_coordinator(
                    client, LeaveGroupRequest(group_id=GroupId(self._group), members=(who,))
                )
        except FAILURES:
            return


def _encode_subscription(topic: str) -> bytes:
    """Version 1 of ConsumerProtocolSubscription: one topic, no user data, nothing owned."""
    name = topic.encode()
    return struct.pack(f">hih{len(name)}sii", 1, 1, len(name), name, -1, 0)
