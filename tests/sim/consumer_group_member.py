"""A member of a consumer group that speaks the consumer protocol (KIP-848), and checks that no
partition has two owners.

It gives up partitions before it reports that it has revoked them. Those that it owns count as given
up when its heartbeats have failed for a session: from then on the coordinator may remove the member
at any time.
"""

import asyncio
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.sim.client import FAILURES, Workload
from tests.sim.group_member import HEARTBEAT_S, Member
from tests.sim.history import TopicPartition
from tests.sim.processes import SimulatedProcess

SESSION_S = 3.0  # group.consumer.session.timeout.ms of the run
REBALANCE_S = 10.0  # longer than a session, whose end removes a silent member first
REVOCATION_S = 1.0
JOIN, LEAVE = 0, -1
MUST_REJOIN = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)


class ConsumerGroupMember(Member):
    """`_owned`: partition → position. A full heartbeat repeats the subscription and what the member
    owns. After a failure heartbeats are full until one succeeds, because a response may have been
    lost."""

    def __init__(
        self, workload: Workload, process: SimulatedProcess, random: Random, group: str, topic: str, rack: str
    ) -> None:
        super().__init__(workload, process, random, group, topic, rack)
        self._id = self._new_id()
        self._epoch = JOIN
        self._is_full = True
        self._owned: dict[TopicPartition, int] = {}
        self._topic_id: UUID | None = None

    def _new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128)))

    async def _join_and_consume(self, client: Client) -> bool:
        uncommitted, beat_at = 0, 0.0
        try:
            while not self.is_leaving:
                if self.loop.time() >= beat_at:
                    beat_at = self.loop.time() + HEARTBEAT_S
                    if uncommitted and self._owned and self.random.randrange(3) == 0:
                        await self._commit_or_leave(client)
                        uncommitted = 0
                    await self._heartbeat_and_reconcile(client)
                for tp in self._owned:
                    uncommitted += await self._read(client, tp, self._owned)
                if not self._owned:
                    await asyncio.sleep(0.2)
        except FAILURES:
            self._is_full = True
            self.forget_coordinator(self._group)
            raise
        self._give_up(self._owned.keys())
        self._epoch = LEAVE
        await self._send_heartbeat(client)
        return True

    async def _commit_or_leave(self, client: Client) -> None:
        """After a commit with an unknown outcome the member goes on under another id, so that the
        commit cannot be applied later and undo another one."""
        try:
            await self._commit(client, self._epoch, self._owned)
        except FAILURES:
            self._give_up(self._owned.keys())
            self._epoch = LEAVE
            try:
                async with asyncio.timeout(0.5):
                    await self._send_heartbeat(client)
            except FAILURES as reason:
                self.record_failure(f"leaving {self._group}", reason)
            self._id, self._epoch = self._new_id(), JOIN
            raise

    async def _heartbeat_and_reconcile(self, client: Client) -> None:
        sent_at = self.loop.time()
        response = await self._send_heartbeat(client)
        self._check_session(sent_at)
        if response.error_code in MUST_REJOIN:
            self._give_up(self._owned.keys())
            self._epoch, self._is_full = JOIN, True
            return
        raise_for_error(response.error_code, "ConsumerGroupHeartbeat")
        self._epoch, self._is_full = int(response.member_epoch), False
        owned = set(self._owned)
        if (assigned := self._read_assignment(response)) is not None:
            owned = assigned
            await self._revoke(self._owned.keys() - owned)
            self._check_session(sent_at)
            self._is_full = True  # reports what it owns with the next heartbeat
        self._record_owners(owned, sent_at + SESSION_S)
        if added := sorted(owned - self._owned.keys()):
            found = await self._positions(client, added)
            self._owned |= {tp: max(found.get(tp, 0), 0) for tp in added}
            self.workload.trace.add_line(
                f"is in {self._group}, epoch {self._epoch}, with {sorted(p for _, p in self._owned)}"
            )

    def _check_session(self, sent_at_s: float) -> None:
        """Raises TimeoutError when the member may have been removed since its last heartbeat."""
        if self.loop.time() - sent_at_s >= SESSION_S:
            raise TimeoutError

    def _read_assignment(self, response: Any) -> set[TopicPartition] | None:
        """None if it has not changed."""
        if response.assignment is None:
            return None
        return {
            (self._topic, int(partition))
            for topic in response.assignment.topic_partitions
            if topic.topic_id == self._topic_id
            for partition in topic.partitions
        }

    async def _revoke(self, surplus: set[TopicPartition]) -> None:
        if surplus:
            await asyncio.sleep(self.random.uniform(0, REVOCATION_S))  # the application finishes its work
            self._give_up(surplus)

    def _record_owners(self, owned: set[TopicPartition], until_s: float) -> None:
        for tp in owned:
            self.workload.history.record_owner(self._group, tp, self._id, self.loop.time(), until_s)

    def _give_up(self, partitions: Any) -> None:
        for tp in list(partitions):
            self.workload.history.remove_owner(self._group, tp, self._id)
            del self._owned[tp]

    async def _send_heartbeat(self, client: Client) -> Any:
        if self._topic_id is None:
            (topic,) = (await self.metadata(client, [self._topic])).topics
            self._topic_id = topic.topic_id
        is_full = self._is_full or self._epoch == JOIN
        owned: tuple[TopicPartitions, ...] | None = None
        if is_full:
            partitions = tuple(i32(p) for _, p in sorted(self._owned)) if self._epoch != JOIN else ()
            owned = (TopicPartitions(topic_id=self._topic_id, partitions=partitions),) if partitions else ()
        request = ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self._group),
            member_id=self._id,
            member_epoch=i32(self._epoch),
            rebalance_timeout=to_timedelta_field(REBALANCE_S if is_full else -0.001),
            subscribed_topic_names=(TopicName(self._topic),) if is_full else None,
            topic_partitions=owned,
        )
        return await self._send_to_group_coordinator(client, request)
