"""A member of a share group (KIP-932), which accepts, releases, rejects or renews the records that
it gets, or keeps them longer than their locks. It acknowledges with ShareFetch or ShareAcknowledge.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.share_acknowledge.v2 import request as acknowledge_v2
from kio.schema.share_fetch.v2.request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.records import decode_batch
from tests.sim.client import FAILURES, Leader, SimulatedClient, Workload
from tests.sim.history import TopicPartition
from tests.sim.plan import LOCK_S
from tests.sim.processes import SimulatedProcess
from tests.sim.share_history import AcknowledgeType, Delivery, ShareHistory

HEARTBEAT_S = 0.5
WORK_S = (0.0, 0.8)
KEEPS_FOR_S = (0.75 * LOCK_S, 2 * LOCK_S)
MAX_RECORDS = (1, 5, 20)
MAX_WAIT_S = 0.2
RECORD_LIMIT = 1
JOIN, LEAVE = 0, -1
MUST_REJOIN = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)
NOT_APPLIED = ErrorCode.invalid_record_state

Choice = tuple[AcknowledgeType, float]
"""An acknowledgement, and when it is sent."""


@dataclass
class HeldRecord:
    """`leader`: the one that has delivered it."""

    choice: Choice
    leader: Leader


Acknowledgements = dict[TopicPartition, list[tuple[int, AcknowledgeType]]]


class ShareGroupMember(SimulatedClient):
    """`_held`: delivered records that it has not acknowledged yet."""

    def __init__(
        self,
        workload: Workload,
        process: SimulatedProcess,
        random: Random,
        shares: ShareHistory,
        group: str,
        topic: str,
        *,
        has_dead_letters: bool,
    ) -> None:
        super().__init__(workload, process, random)
        self._shares = shares
        self._group = group
        self._topic = topic
        self._has_dead_letters = has_dead_letters  # otherwise it accepts before the limit
        self._id = str(UUID(int=random.getrandbits(128)))
        self._epoch = JOIN
        self._assigned: list[TopicPartition] = []
        self._session_epochs: dict[int, int] = {}  # by broker, of the next request
        self._session_partitions: dict[int, list[TopicPartition]] = {}  # by broker
        self._sends_subscription = True
        self._held: dict[tuple[TopicPartition, int], HeldRecord] = {}
        self._may_run = asyncio.Event()
        self._may_run.set()

    @property
    def is_paused(self) -> bool:
        return not self._may_run.is_set()

    def pause_requests(self) -> None:
        """Makes it send nothing, not even heartbeats, until `resume_requests`. Then it fetches
        first.
        """
        self._may_run.clear()

    def resume_requests(self) -> None:
        self._may_run.set()

    def fetches_from(self, tp: TopicPartition, node: int) -> bool:
        """True if it takes this broker for the leader of a partition that it is assigned."""
        known = self._leaders.get(tp)
        return tp in self._assigned and known is not None and known.broker == node

    async def run(self) -> None:
        await self.retry_until_done(f"member of {self._group}", self._join_and_consume)

    async def _join_and_consume(self, client: Client) -> bool:
        self._sends_subscription = True  # so that the response has the assignment, if one was lost
        self._session_epochs.clear()  # sessions end with their connections, and locks with sessions
        self._held.clear()
        beat_at = 0.0
        try:
            while not self.stopping:
                await self._may_run.wait()
                nodes = {(await self.leader(client, tp)).broker for tp in self._assigned}
                for node in sorted(nodes):
                    await self._work_at(client, node)
                if self.loop.time() >= beat_at:
                    beat_at = self.loop.time() + HEARTBEAT_S
                    await self._send_heartbeat(client)
                elif not nodes:
                    await asyncio.sleep(0.2)
            self._epoch = LEAVE
            await self._send_heartbeat(client)
        except FAILURES:
            self.forget_coordinator(self._group)
            for tp in self._assigned:
                self.forget_leader(tp)
            raise
        return True

    async def _send_heartbeat(self, client: Client) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=GroupId(self._group),
            member_id=self._id,
            member_epoch=i32(self._epoch),
            subscribed_topic_names=(TopicName(self._topic),)
            if self._epoch == JOIN or self._sends_subscription
            else None,
        )
        response = await self.send_to_coordinator(client, self._group, request)
        if response.error_code in MUST_REJOIN:
            self._epoch, self._assigned = JOIN, []
            return
        raise_for_error(response.error_code, "ShareGroupHeartbeat")
        self._epoch, self._sends_subscription = int(response.member_epoch), False
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            self._assigned = sorted((self._topic, int(at)) for one in topics for at in one.partitions)

    # --- one broker

    async def _work_at(self, client: Client, node: int) -> None:
        mine = [tp for tp in self._assigned if (await self.leader(client, tp)).broker == node]
        if not mine:
            return  # the leader has changed since the brokers were listed
        if node not in self._session_epochs:
            await self._fetch(client, node, mine, {})
            return
        due = self._take_due(mine)
        renewed = {tp: [one for one in pairs if one[1] is AcknowledgeType.renew] for tp, pairs in due.items()}
        others = {tp: [one for one in pairs if one[1] is not AcknowledgeType.renew] for tp, pairs in due.items()}
        if any(renewed.values()):
            await self._acknowledge(client, node, renewed, renews=True)
        if any(others.values()) and self.random.randrange(2):
            await self._acknowledge(client, node, others, renews=False)
            others = {}
        await self._fetch(client, node, mine, others)

    def _take_due(self, mine: list[TopicPartition]) -> Acknowledgements:
        """Removes and returns the acknowledgements that are due. A renewed record is accepted
        later. What another leader has delivered is forgotten, as by Kafka's client."""
        due: Acknowledgements = {}
        for (tp, offset), held in list(self._held.items()):
            if tp in mine and held.leader != self._leaders.get(tp):
                del self._held[tp, offset]
        for (tp, offset), held in sorted(self._held.items()):
            kind, at_s = held.choice
            if tp not in mine or (at_s > self.loop.time() and not self._shares.faults_are_over):
                continue
            due.setdefault(tp, []).append((offset, kind))
            if kind is AcknowledgeType.renew:
                held.choice = AcknowledgeType.accept, self.loop.time() + self.random.uniform(*WORK_S)
            else:
                del self._held[tp, offset]
        return due

    async def _acknowledge(self, client: Client, node: int, due: Acknowledgements, *, renews: bool) -> None:
        topic_id = (await self.leader(client, next(iter(due)))).topic_id
        partitions = tuple(
            acknowledge_v2.AcknowledgePartition(
                partition_index=i32(tp[1]),
                acknowledgement_batches=tuple(
                    acknowledge_v2.AcknowledgementBatch(
                        first_offset=i64(offset), last_offset=i64(offset), acknowledge_types=(i8(kind),)
                    )
                    for offset, kind in pairs
                ),
            )
            for tp, pairs in due.items()
            if pairs
        )
        request = acknowledge_v2.ShareAcknowledgeRequest(
            group_id=GroupId(self._group),
            member_id=self._id,
            share_session_epoch=i32(self._session_epochs[node]),
            is_renew_ack=renews,
            topics=(acknowledge_v2.AcknowledgeTopic(topic_id=topic_id, partitions=partitions),),
        )
        requested_s = self.loop.time()
        response = await self._send(client, node, request, due)
        results = {
            (self._topic, int(one.partition_index)): one.error_code
            for topic in response.responses
            for one in topic.partitions
        }
        self._record_results(due, results, requested_s)

    async def _fetch(self, client: Client, node: int, mine: list[TopicPartition], due: Acknowledgements) -> None:
        topic_id = (await self.leader(client, mine[0])).topic_id
        partitions = tuple(
            FetchPartition(
                partition_index=i32(tp[1]),
                acknowledgement_batches=tuple(
                    AcknowledgementBatch(
                        first_offset=i64(offset), last_offset=i64(offset), acknowledge_types=(i8(kind),)
                    )
                    for offset, kind in due.get(tp, ())
                ),
            )
            for tp in mine
        )
        epoch = self._session_epochs.get(node, 0)
        former = self._session_partitions.get(node, []) if epoch else []
        self._session_partitions[node] = mine
        forgotten = tuple(i32(tp[1]) for tp in former if tp not in mine)
        max_records = i32(self.random.choice(MAX_RECORDS))
        request = ShareFetchRequest(
            group_id=GroupId(self._group),
            member_id=self._id,
            share_session_epoch=i32(epoch),
            max_wait=to_timedelta_field(MAX_WAIT_S),
            min_bytes=i32(1),
            max_bytes=i32(16 << 10),
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=i8(RECORD_LIMIT),
            topics=(FetchTopic(topic_id=topic_id, partitions=partitions),),
            forgotten_topics_data=(ForgottenTopic(topic_id=topic_id, partitions=forgotten),) if forgotten else (),
        )
        requested_s = self.loop.time()
        response = await self._send(client, node, request, due)
        found = {
            (self._topic, int(one.partition_index)): one for topic in response.responses for one in topic.partitions
        }
        results = {tp: ErrorCode(one.acknowledge_error_code) for tp, one in found.items()}
        self._record_results(due, results, requested_s)
        for tp, one in found.items():
            self._record_deliveries(tp, one, requested_s)
        for tp, one in found.items():
            raise_for_error(one.error_code, f"ShareFetch of {tp}: {one.error_code.name}")

    async def _send(self, client: Client, node: int, request: Any, due: Acknowledgements) -> Any:
        """Sends a request. Its final acknowledgements are uncertain until the response comes."""
        for tp, pairs in due.items():
            for offset, kind in pairs:
                self._shares.records[tp, offset].uncertain += kind.is_final
        epoch = self._session_epochs.pop(node, 0)
        response = await client.send(request, broker=node)
        raise_for_error(response.error_code, f"{type(request).__name__} of epoch {epoch}: {response.error_code.name}")
        self._session_epochs[node] = epoch + 1
        return response

    def _record_results(
        self, due: Acknowledgements, results: dict[TopicPartition, ErrorCode], requested_s: float
    ) -> None:
        for tp, pairs in due.items():
            code = results.get(tp, ErrorCode.none)
            for offset, kind in pairs:
                if code is ErrorCode.none:
                    self._shares.record_acknowledged(tp, offset, self.name, kind, requested_s, self.loop.time())
                if code in (ErrorCode.none, NOT_APPLIED):
                    self._shares.records[tp, offset].uncertain -= kind.is_final
            if code not in (ErrorCode.none, NOT_APPLIED):
                raise KafkaError(code, f"acknowledgement of {tp}: {code.name}")

    def _record_deliveries(self, tp: TopicPartition, found: Any, requested_s: float) -> None:
        counts = {
            offset: int(span.delivery_count)
            for span in found.acquired_records
            for offset in range(span.first_offset, span.last_offset + 1)
        }
        data, leader = found.records or b"", self._leaders[tp]
        for position, header in iter_batches(data):
            for record in decode_batch(data, header, position):
                if record.offset in counts:
                    delivery = Delivery(
                        self.name, requested_s, self.loop.time(), counts[record.offset], record.value or b""
                    )
                    self._shares.record_delivery(tp, record.offset, delivery)
                    self._held[tp, record.offset] = HeldRecord(self._choose(delivery), leader)

    def _choose(self, delivery: Delivery) -> Choice:
        now_s, random = self.loop.time(), self.random
        work_s = random.uniform(*WORK_S)
        draw = random.randrange(20)
        must_accept = delivery.count >= self._shares.max_deliveries // 2 and not self._has_dead_letters
        if self._shares.faults_are_over or draw >= 8 or must_accept:
            return AcknowledgeType.accept, now_s + work_s
        if draw < 3:
            return AcknowledgeType.release, now_s + work_s
        if draw < 4:
            return AcknowledgeType.reject, now_s + work_s
        if draw < 6:
            return AcknowledgeType.renew, now_s + work_s
        return AcknowledgeType.accept, now_s + random.uniform(*KEEPS_FOR_S)
