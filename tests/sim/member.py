"""A member of a consumer group that reads everything, and commits after it has read.

A commit whose fate it does not know costs it its membership, so that it cannot come true later and undo another.
"""

import asyncio
import json
from random import Random
from typing import Any

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v3.request import LeaveGroupRequest, MemberIdentity
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from ottla_broker.wire.client import Client, raise_for_error, to_timedelta_field
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import iter_records
from tests.sim.client import FAILURES, SimulatedClient, World
from tests.sim.history import Commit, Place
from tests.sim.processes import SimulatedProcess

HEARTBEAT_S = 0.5
ASKS_LATEST_ONE_IN = 20  # fetches
GROWTH_LOOK_S = 3.0  # how often the group's leader looks for new partitions


class Member(SimulatedClient):
    """`rack`: where it would like to read from followers; empty: it reads from leaders."""

    def __init__(
        self, world: World, process: SimulatedProcess, random: Random, group: str, topic: str, rack: str
    ) -> None:
        super().__init__(world, process, random)
        self._group = group
        self._topic = topic
        self._rack = rack
        self._id = ""
        self._leads_with: int | None = None  # so many partitions were shared out by us; None: not by us
        self._preferred: dict[Place, int] = {}

    async def run(self) -> None:
        await self.until_done(f"member of {self._group}", self._membership)

    async def _membership(self, client: Client) -> bool:
        try:
            generation, mine = await self._join(client)
            positions = {place: max(offset, 0) for place, offset in (await self._positions(client, mine)).items()}
            unsaid = 0
            beat_at, look_at = 0.0, self.loop.time() + GROWTH_LOOK_S
            while not self.stopping:
                for place in positions:
                    unsaid += await self._read(client, place, positions)
                if unsaid and self.random.randrange(3) == 0:
                    await self._commit(client, generation, positions)
                    unsaid = 0
                if not positions:
                    await asyncio.sleep(0.5)
                if self.loop.time() < beat_at:
                    continue
                beat_at = self.loop.time() + HEARTBEAT_S
                if (code := await self._heartbeat(client, generation)) is not ErrorCode.none:
                    if code is ErrorCode.rebalance_in_progress:
                        if unsaid:
                            await self._commit(client, generation, positions)
                        return False
                    raise KafkaError(code, "Heartbeat")
                if self._leads_with is not None and self.loop.time() >= look_at:
                    look_at = self.loop.time() + GROWTH_LOOK_S
                    if await self._partitions(client) > self._leads_with:
                        return False  # joining again makes everybody join
        except FAILURES:
            left, self._id = self._id, ""
            await self._leave(client, left)
            self.forget_coordinator(self._group)
            raise
        return True

    async def _positions(self, client: Client, places: list[Place]) -> dict[Place, int]:
        return await self.committed(client, self._group, places) if places else {}

    async def _ask(self, client: Client, request: Any) -> Any:
        return await self.ask_coordinator(client, self._group, request)

    async def _partitions(self, client: Client) -> int:
        (topic,) = (await self.metadata(client, [self._topic])).topics
        return len(topic.partitions)

    async def _join(self, client: Client) -> tuple[int, list[Place]]:
        while True:
            request = JoinGroupRequest(
                group_id=GroupId(self._group),
                session_timeout=to_timedelta_field(6),
                rebalance_timeout=to_timedelta_field(3),
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="spread", metadata=b""),),
            )
            joined = await self._ask(client, request)
            if joined.error_code is ErrorCode.member_id_required:
                self._id = joined.member_id
                continue
            raise_for_error(joined.error_code, "JoinGroup")
            break
        self._id = joined.member_id
        self._leads_with = None
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == self._id:
            count = self._leads_with = await self._partitions(client)
            members = sorted(member.member_id for member in joined.members)
            assignments = tuple(
                SyncGroupRequestAssignment(
                    member_id=member, assignment=json.dumps(list(range(count))[at :: len(members)]).encode()
                )
                for at, member in enumerate(members)
            )
        synced = await self._ask(
            client,
            SyncGroupRequest(
                group_id=GroupId(self._group),
                generation_id=joined.generation_id,
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name="spread",
                assignments=assignments,
            ),
        )
        raise_for_error(synced.error_code, "SyncGroup")
        mine = [(self._topic, partition) for partition in json.loads(synced.assignment)]
        self.world.trace.add_line(
            f"is in {self._group}, generation {joined.generation_id}, with {[p for _, p in mine]}"
        )
        return int(joined.generation_id), mine

    async def _read(self, client: Client, place: Place, positions: dict[Place, int]) -> int:
        broker = self._preferred.pop(place, None)
        try:
            if self.random.randrange(ASKS_LATEST_ONE_IN) == 0:
                await self.latest(client, place)
            fetched = await self.fetch(client, place, positions[place], rack=self._rack, broker=broker)
        except FAILURES as reason:  # no reason to leave the group: somebody else will lead soon
            self.failed(f"fetch of {self._group}", reason)
            await self.pause()
            return 0
        if fetched.preferred >= 0:
            self._preferred[place] = fetched.preferred
        elif broker is not None and fetched.records:
            self._preferred[place] = broker  # as long as it has something to say; then the leader is asked again
        history, count = self.world.history, 0
        for header, record in iter_records(fetched.records):
            if record.offset >= positions[place] and not header.is_control:
                history.consumed(self._group, place, record.offset, record.value or b"")
                count += 1
                if -1 < fetched.high_watermark <= record.offset:
                    self.problem(
                        f"read {place} offset {record.offset} above the high watermark {fetched.high_watermark}"
                    )
            if record.offset + 1 == header.next_offset:
                positions[place] = max(positions[place], header.next_offset)
                self.heard_of_epoch(place, header.leader_epoch)
        return count

    async def _commit(self, client: Client, generation: int, positions: dict[Place, int]) -> None:
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
                            partition_index=i32(place[1]),
                            committed_offset=i64(offset),
                            committed_leader_epoch=i32(self._epochs.get(place, -1)),
                            committed_metadata="",
                        )
                        for place, offset in wanted.items()
                    ),
                ),
            ),
        )
        answer = await self._ask(client, request)
        for partition in answer.topics[0].partitions:
            raise_for_error(partition.error_code, "OffsetCommit")
            place = (self._topic, int(partition.partition_index))
            self.world.history.acked_commit(Commit(self._group, place, wanted[place], self.loop.time()))

    async def _heartbeat(self, client: Client, generation: int) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GroupId(self._group), generation_id=i32(generation), member_id=self._id, group_instance_id=None
        )
        code: ErrorCode = (await self._ask(client, request)).error_code
        return code

    async def _leave(self, client: Client, member: str) -> None:
        """Tells the group that this member comes no more, if that can be told."""
        try:
            async with asyncio.timeout(0.5):
                who = MemberIdentity(member_id=member, group_instance_id=None)
                await self._ask(client, LeaveGroupRequest(group_id=GroupId(self._group), members=(who,)))
        except FAILURES:
            return
