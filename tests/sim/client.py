"""The base of all clients of a run: connections with timeouts, leaders and their epochs, recorded
failures.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.wire.batch import drop_partial_batch
from ottla_broker.wire.client import GROUP_KEY_TYPE, Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.sim.cluster import START_MS
from tests.sim.history import History, TopicPartition
from tests.sim.processes import SimulatedProcess
from tests.sim.trace import Trace

FAILURES = (KafkaError, OSError, TimeoutError)
REQUEST_TIMEOUT_S = 4.0  # for one response
PAUSE_S = (0.05, 0.3)  # between attempts
# Errors that no fault explains. They are violations.
UNEXPECTED_ERRORS = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.offset_out_of_range,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_server_error,
        ErrorCode.invalid_record,
        ErrorCode.invalid_request,
    }
)


@dataclass
class Workload:
    """State shared by the clients of a run.

    `stop_event` makes them finish. `counts`: what they have done, such as topics created, by name.
    """

    addresses: Callable[[], Sequence[str]]  # host:port of each broker
    history: History
    trace: Trace
    stop_event: asyncio.Event = field(default_factory=asyncio.Event)
    counts: dict[str, int] = field(default_factory=dict)


class Leader(NamedTuple):
    broker: int
    epoch: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class FetchResult:
    """`high_watermark` and `last_stable_offset` are −1 if the leader does not know them yet;
    `preferred` is the preferred read replica or −1. `leader_epoch`: the one the request named.
    `aborted`: producer id and first offset of each aborted transaction.
    """

    records: bytes
    high_watermark: int
    preferred: int
    last_stable_offset: int
    leader_epoch: int
    aborted: tuple[tuple[int, int], ...]


class SimulatedClient:
    """One program on one host."""

    def __init__(self, workload: Workload, process: SimulatedProcess, random: Random) -> None:
        self.workload = workload
        self.name = process.host
        self.process = process
        self.random = random
        self.loop = process.loop
        self._leaders: dict[TopicPartition, Leader] = {}
        self._epochs: dict[TopicPartition, int] = {}  # newest leader epochs; older metadata are ignored
        self._coordinators: dict[tuple[int, str], int] = {}  # by kind and key
        self._fetched_in: dict[TopicPartition, int] = {}  # → leader epoch of the last fetch

    @property
    def stopping(self) -> bool:
        return self.workload.stop_event.is_set()

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.uniform(*PAUSE_S))

    @asynccontextmanager
    async def connect(self, timeout_s: float = REQUEST_TIMEOUT_S) -> AsyncIterator[Client]:
        """Connects through a random broker, because a fixed one might be unreachable. `timeout_s`:
        for one response."""
        brokers = self.workload.addresses()
        brokers = self.random.sample(brokers, len(brokers))
        async with Client.connect(",".join(brokers), client_id=self.name, timeout_s=timeout_s) as client:
            yield client

    def record_failure(
        self, doing: str, reason: BaseException, expected_errors: frozenset[ErrorCode] = frozenset()
    ) -> None:
        """Records a failed attempt. It is a violation if its error is one of `UNEXPECTED_ERRORS`
        and none of `expected_errors`.
        """
        if isinstance(reason, KafkaError) and reason.code in UNEXPECTED_ERRORS - expected_errors:
            self.record_violation(f"{doing}: {reason.code.name}: {reason.message}")
        else:
            self.workload.trace.add_line(f"{doing}: {type(reason).__name__} {reason}")

    def record_violation(self, what: str) -> None:
        self.workload.history.record_violation(f"{self.name}: {what}")

    async def retry_until_done(
        self,
        doing: str,
        attempt: Callable[[Client], Awaitable[bool]],
        is_wanted: Callable[[], bool] = lambda: True,
        expected_errors: frozenset[ErrorCode] = frozenset(),
    ) -> bool:
        """Runs `attempt` again and again, after a failure with a new connection, until it returns
        True, `is_wanted` is False or the run is over. Returns True only in the first case.

        `expected_errors`: see `record_failure`.
        """
        while not self.stopping and is_wanted():
            try:
                async with self.connect() as client:
                    while not self.stopping and is_wanted():
                        if await attempt(client):
                            return True
            except FAILURES as reason:
                self.record_failure(doing, reason, expected_errors)
                await self.pause()
        return False

    # --- leaders

    async def metadata(self, client: Client, topics: Sequence[str] | None) -> MetadataResponse:
        """Metadata of these topics (None: all) from one broker; leaders with newer epochs are
        remembered.
        """
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            answer = await client.metadata(topics)
        for topic in answer.topics:
            for partition in topic.partitions:
                tp, epoch = (topic.name or "", int(partition.partition_index)), int(partition.leader_epoch)
                if epoch >= self._epochs.get(tp, -1) and partition.leader_id >= 0 and topic.topic_id is not None:
                    self._leaders[tp] = Leader(int(partition.leader_id), epoch, topic.topic_id)
                    self._epochs[tp] = epoch
        return answer

    async def leader(self, client: Client, tp: TopicPartition) -> Leader:
        if tp not in self._leaders:
            await self.metadata(client, [tp[0]])
        if tp not in self._leaders:
            raise KafkaError(ErrorCode.leader_not_available, f"no leader of {tp} is known")
        return self._leaders[tp]

    def forget_leader(self, tp: TopicPartition) -> None:
        """Forgets a leader that does not respond or has stepped down."""
        self._leaders.pop(tp, None)

    def learn_epoch(self, tp: TopicPartition, epoch: int) -> None:
        """Records the epoch of a record or a commit: leaders of older epochs are no longer used."""
        if epoch > self._epochs.get(tp, -1):
            self._epochs[tp] = epoch
            if tp in self._leaders and self._leaders[tp].epoch < epoch:
                del self._leaders[tp]

    # --- requests

    async def send_to_coordinator(
        self, client: Client, key: str, request: Any, *, key_type: int = GROUP_KEY_TYPE
    ) -> Any:
        """`key`: a group, or a transactional id."""
        if (key_type, key) not in self._coordinators:
            found = await client.send(FindCoordinatorRequest(key=key, key_type=i8(key_type)))
            raise_for_error(found.error_code, f"no coordinator of {key}: {found.error_message}")
            self._coordinators[key_type, key] = int(found.node_id)
        return await client.send(request, broker=self._coordinators[key_type, key])

    def forget_coordinator(self, key: str, *, key_type: int = GROUP_KEY_TYPE) -> None:
        self._coordinators.pop((key_type, key), None)

    async def fetch(
        self,
        client: Client,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 16 << 10,
        rack: str = "",
        broker: int | None = None,
        records_high_watermark: bool = True,
        read_committed: bool = False,
    ) -> FetchResult:
        """Fetches from the leader, or from `broker`, which may be a follower. Raises KafkaError.

        The leader's high watermark is recorded if `records_high_watermark`. The first fetch from a
        new leader does not wait.
        """
        history = self.workload.history
        leader = await self.leader(client, tp)
        max_wait_s = 0.2 if self._fetched_in.get(tp) == leader.epoch else 0.0
        self._fetched_in[tp] = leader.epoch
        known = history.high_watermark(tp, leader.epoch)
        wanted = FetchPartition(
            partition=i32(tp[1]),
            current_leader_epoch=i32(leader.epoch),
            fetch_offset=i64(offset),
            partition_max_bytes=i32(max_bytes),
        )
        request = FetchRequest(
            max_wait=to_timedelta_field(max_wait_s),
            min_bytes=i32(1),
            max_bytes=i32(max_bytes),
            isolation_level=i8(read_committed),
            topics=(FetchTopic(topic=TopicName(tp[0]), partitions=(wanted,)),),
            forgotten_topics_data=(),
            rack_id=rack,
        )
        try:
            answer = await client.send(request, broker=leader.broker if broker is None else broker)
            raise_for_error(answer.error_code, "Fetch")
            (found,) = answer.responses[0].partitions
            raise_for_error(
                found.error_code, f"fetch {tp} at {offset} in epoch {leader.epoch}: {found.error_code.name}"
            )
        except FAILURES:
            self.forget_leader(tp)
            raise
        high_watermark = int(found.high_watermark)
        if high_watermark >= 0 and broker is None and records_high_watermark:
            history.record_high_watermark(tp, leader.epoch, high_watermark, known)
        return FetchResult(
            drop_partial_batch(found.records or b""),
            high_watermark,
            int(found.preferred_read_replica),
            int(found.last_stable_offset),
            leader.epoch,
            tuple((int(one.producer_id), int(one.first_offset)) for one in found.aborted_transactions or ()),
        )

    async def latest_offset(
        self,
        client: Client,
        tp: TopicPartition,
        *,
        records_high_watermark: bool = True,
        read_committed: bool = False,
    ) -> int:
        """The latest offset by ListOffsets, recorded if `records_high_watermark`. Raises
        KafkaError.
        """
        history = self.workload.history
        leader = await self.leader(client, tp)
        known = history.high_watermark(tp, leader.epoch)
        wanted = ListOffsetsPartition(
            partition_index=i32(tp[1]), current_leader_epoch=i32(leader.epoch), timestamp=i64(LATEST_TIMESTAMP)
        )
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(read_committed),
            topics=(ListOffsetsTopic(name=TopicName(tp[0]), partitions=(wanted,)),),
        )
        try:
            answer = await client.send(request, broker=leader.broker)
            (found,) = answer.topics[0].partitions
            raise_for_error(found.error_code, f"latest offset of {tp} in epoch {leader.epoch}: {found.error_code.name}")
        except FAILURES:
            self.forget_leader(tp)
            raise
        if records_high_watermark:
            history.record_high_watermark(tp, leader.epoch, int(found.offset), known)
        return int(found.offset)

    async def committed_offsets(
        self, client: Client, group: str, topic_partitions: Sequence[TopicPartition], *, require_stable: bool = False
    ) -> dict[TopicPartition, int]:
        """The committed offsets of a group; −1 for none. Raises KafkaError; with `require_stable`,
        this is UNSTABLE_OFFSET_COMMIT while an open transaction has an offset of these partitions.

        An offset below an acknowledged commit is a violation. Leader epochs of the commits are
        remembered.
        """
        history = self.workload.history
        known = {tp: history.committed_offsets.get((group, tp), -1) for tp in topic_partitions}
        by_topic: dict[str, list[int]] = {}
        for topic, partition in topic_partitions:
            by_topic.setdefault(topic, []).append(partition)
        request = OffsetFetchRequest(
            group_id=GroupId(group),
            topics=tuple(
                OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=tuple(map(i32, partitions)))
                for topic, partitions in by_topic.items()
            ),
            require_stable=require_stable,
        )
        answer = await self.send_to_coordinator(client, group, request)
        raise_for_error(answer.error_code, "OffsetFetch")
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                raise_for_error(partition.error_code, "OffsetFetch")
                tp = topic.name, int(partition.partition_index)
                found[tp] = int(partition.committed_offset)
                history.check_committed(group, tp, found[tp], known[tp])
                self.learn_epoch(tp, int(partition.committed_leader_epoch))
        return found
