"""The state that a client library keeps for one instance of a transactional producer: its id and
epoch, its sequence numbers, and the protocol of its transactions (KIP-98, KIP-360, KIP-447,
KIP-890).

It retries, aborts and gives up as the Java client does. Without a response it is unknown whether a
request took effect.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.end_txn.v4 import request as end_txn_1
from kio.schema.end_txn.v5 import request as end_txn_2
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.produce.v11 import request as produce_1
from kio.schema.produce.v12 import request as produce_2
from kio.schema.txn_offset_commit.v4 import request as offsets_1
from kio.schema.txn_offset_commit.v5 import request as offsets_2
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i16, i32, i64

from ottla_broker.metadata.features import TRANSACTION_VERSION
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.records import Record, encode_batch
from tests.sim.client import SimulatedClient
from tests.sim.history import TopicPartition
from tests.sim.transaction_errors import ABORTABLE, FENCING, AbortableError, Fenced, NoAnswer, check_code
from tests.sim.transaction_history import Transaction, TransactionHistory, TransactionOutcome

T = TypeVar("T")

TRANSACTION_KEY_TYPE = 1
NEW_PRODUCER = (-1, -1)
TRANSACTION_TIMEOUTS_S = (3.0, 20.0, 20.0)
REQUEST_AND_DELIVERY_TIMEOUTS_S = ((0.5, 1.0), (0.5, 1.0), (1.5, 4.0), (4.0, 10.0))


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`delivery_s`: after which a batch, or another request, is given up."""

    transaction_s: float
    request_s: float
    delivery_s: float


def choose_timeouts(random: Random) -> Timeouts:
    return Timeouts(random.choice(TRANSACTION_TIMEOUTS_S), *random.choice(REQUEST_AND_DELIVERY_TIMEOUTS_S))


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """The consumer's membership that `sendOffsetsToTransaction` passes on (KIP-447)."""

    group: str
    generation: int
    member: str


@dataclass(eq=False)
class TransactionalSession:
    """`owner` has the connections. `protocol`: 2 in transaction version 2 (KIP-890), 1 in older
    ones, 0 before the first transaction. `has_unknown_batch`: a batch's fate is unknown, so its
    sequence numbers cannot be used again in this epoch."""

    owner: SimulatedClient
    history: TransactionHistory
    transactional_id: str
    instance: int
    timeouts: Timeouts
    producer: tuple[int, int] = NEW_PRODUCER
    protocol: int = 0
    transaction: Transaction | None = None
    has_unknown_batch: bool = False
    has_begun: bool = False
    _added: set[TopicPartition] = field(default_factory=set)
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)
    _connections: AsyncExitStack | None = None
    _client: Client | None = None

    @property
    def name(self) -> str:
        return f"{self.transactional_id}#{self.instance}"

    # --- the protocol

    async def init(self) -> None:
        """Gets the id and epoch, which fences former instances. Raises Fenced, NoAnswer."""
        await self._init_producer(NEW_PRODUCER)
        self.history.record_init(self.transactional_id, self.instance, self.producer[1])

    async def _init_producer(self, expected: tuple[int, int]) -> None:
        async def attempt(client: Client) -> tuple[int, int]:
            request = InitProducerIdRequest(
                transactional_id=TransactionalId(self.transactional_id),
                transaction_timeout=to_timedelta_field(self.timeouts.transaction_s),
                producer_id=ProducerId(i64(expected[0])),
                producer_epoch=i16(expected[1]),
            )
            answer = await self._send_to_coordinator(client, request)
            check_code(answer.error_code, "InitProducerId")
            return int(answer.producer_id), int(answer.producer_epoch)

        self._set_producer(await self._retry("InitProducerId", attempt))

    def _set_producer(self, producer: tuple[int, int]) -> None:
        if producer != self.producer:
            self._sequences.clear()
        self.producer = producer
        self.has_unknown_batch = False

    async def begin(self) -> Transaction:
        """Begins a transaction, in the protocol that the brokers report now. Like the Java client,
        it gets a new epoch before the first transaction with transaction version 2, because the
        markers of the transaction before may still be on their way.
        """
        former, self.protocol = self.protocol, await self._retry("ApiVersions", self._find_protocol)
        if former == 1 and self.protocol == 2:
            await self._init_producer(self.producer)
        self._added.clear()
        self.has_begun = False
        self.transaction = self.history.begin(self.transactional_id, self.instance)
        return self.transaction

    async def _find_protocol(self, client: Client) -> int:
        answer = await client.send(ApiVersionsRequest(client_software_name="sim", client_software_version="1"))
        levels = {one.name: int(one.max_version_level) for one in answer.finalized_features}
        return 2 if levels.get(TRANSACTION_VERSION.name, 0) >= 2 else 1

    async def send(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        """Sends one batch, and returns when it is acknowledged. Raises Fenced, AbortableError,
        NoAnswer."""
        assert self.transaction is not None
        if self.protocol == 1:
            await self._add_partition(tp)
        sequence = self._sequences.get(tp, 0)
        now_ms = self.owner.now_ms()
        batch = encode_batch(
            [Record(now_ms, None, value) for value in values],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        self.transaction.values.update((value, tp) for value in values)
        schema: Any = produce_1 if self.protocol == 1 else produce_2
        request = schema.ProduceRequest(
            transactional_id=TransactionalId(self.transactional_id),
            acks=i16(-1),
            timeout=to_timedelta_field(3),
            topic_data=(
                schema.TopicProduceData(
                    name=TopicName(tp[0]),
                    partition_data=(schema.PartitionProduceData(index=i32(tp[1]), records=Records(batch)),),
                ),
            ),
        )

        async def attempt(client: Client) -> None:
            leader = await self.owner.leader(client, tp)
            self.has_unknown_batch = self.has_begun = True
            try:
                answer = await client.send(request, broker=leader.broker)
                (result,) = answer.responses[0].partition_responses
                check_code(result.error_code, f"produce to {tp}: {result.error_message}")
            except (KafkaError, OSError, TimeoutError):
                self.owner.forget_leader(tp)
                raise
            self.has_unknown_batch = False

        was_unknown = self.has_unknown_batch
        await self._check_fencing(f"a batch to {tp}", lambda: self._retry(f"produce to {tp}", attempt))
        self.has_unknown_batch = was_unknown
        self._sequences[tp] = sequence + len(values)

    async def _add_partition(self, tp: TopicPartition) -> None:
        if tp in self._added:
            return
        topic = AddPartitionsToTxnTopic(name=TopicName(tp[0]), partitions=(i32(tp[1]),))

        async def attempt(client: Client) -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=TransactionalId(self.transactional_id),
                v3_and_below_producer_id=ProducerId(i64(self.producer[0])),
                v3_and_below_producer_epoch=i16(self.producer[1]),
                v3_and_below_topics=(topic,),
            )
            answer = await self._send_to_coordinator(client, request)
            (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            check_code(result.partition_error_code, "AddPartitionsToTxn")

        await self._check_fencing(f"adding {tp}", lambda: self._retry(f"AddPartitionsToTxn {tp}", attempt))
        self._added.add(tp)
        self.has_begun = True

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], membership: GroupMembership) -> None:
        """Commits a group's offsets in the transaction. Raises Fenced, AbortableError, NoAnswer."""
        if self.protocol == 1:
            await self._retry("AddOffsetsToTxn", lambda client: self._add_offsets(client, membership.group))
        schema: Any = offsets_1 if self.protocol == 1 else offsets_2
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append((partition, offset))
        request = schema.TxnOffsetCommitRequest(
            transactional_id=TransactionalId(self.transactional_id),
            group_id=GroupId(membership.group),
            producer_id=ProducerId(i64(self.producer[0])),
            producer_epoch=i16(self.producer[1]),
            generation_id=i32(membership.generation),
            member_id=membership.member,
            group_instance_id=None,
            topics=tuple(
                schema.TxnOffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        schema.TxnOffsetCommitRequestPartition(
                            partition_index=i32(partition), committed_offset=i64(offset), committed_metadata=""
                        )
                        for partition, offset in found
                    ),
                )
                for topic, found in by_topic.items()
            ),
        )

        async def attempt(client: Client) -> None:
            self.has_begun = True
            try:
                answer = await self.owner.send_to_coordinator(client, membership.group, request)
                for topic in answer.topics:
                    for partition in topic.partitions:
                        check_code(partition.error_code, "TxnOffsetCommit")
            except (KafkaError, OSError, TimeoutError):
                self.owner.forget_coordinator(membership.group)
                raise

        await self._check_fencing("a commit of offsets", lambda: self._retry("TxnOffsetCommit", attempt))

    async def _add_offsets(self, client: Client, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=TransactionalId(self.transactional_id),
            producer_id=ProducerId(i64(self.producer[0])),
            producer_epoch=i16(self.producer[1]),
            group_id=GroupId(group),
        )
        answer = await self._send_to_coordinator(client, request)
        check_code(answer.error_code, "AddOffsetsToTxn")
        self.has_begun = True

    async def commit(self) -> None:
        """Returns when the transaction is committed. Raises Fenced, AbortableError, NoAnswer."""
        transaction = self.transaction
        assert transaction is not None
        if self.has_begun:
            try:
                await self._check_fencing("a commit", lambda: self._end(commit=True))
            except (Fenced, AbortableError) as reason:
                if not reason.is_outcome_unknown:
                    transaction.outcome = TransactionOutcome.open
                raise
        transaction.outcome = TransactionOutcome.committed
        self.history.commit_counts[self.transactional_id] += 1
        self.transaction = None

    async def abort(self) -> None:
        """Returns when the transaction is aborted. Raises Fenced, NoAnswer."""
        if self.has_begun:
            try:
                await self._end(commit=False)
            except AbortableError:
                raise Fenced(is_outcome_unknown=True) from None
            if self.protocol == 1 and self.has_unknown_batch:
                await self._init_producer(self.producer)  # KIP-360
        self.transaction = None

    async def _end(self, *, commit: bool) -> None:
        schema: Any = end_txn_1 if self.protocol == 1 else end_txn_2
        request = schema.EndTxnRequest(
            transactional_id=TransactionalId(self.transactional_id),
            producer_id=ProducerId(i64(self.producer[0])),
            producer_epoch=i16(self.producer[1]),
            committed=commit,
        )

        async def attempt(client: Client) -> Any:
            if commit and self.transaction is not None:
                self.transaction.outcome = TransactionOutcome.unknown
            answer = await self._send_to_coordinator(client, request)
            check_code(answer.error_code, "EndTxn")
            return answer

        answer = await self._retry("commit" if commit else "abort", attempt)
        if self.protocol == 2:
            self._set_producer((int(answer.producer_id), int(answer.producer_epoch)))

    # --- attempts

    async def _check_fencing(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Awaits `work`, which must fail if a newer instance had its epoch before."""
        was_superseded = self.history.is_superseded(self.transactional_id, self.producer[1])
        await work()
        if was_superseded:
            self.owner.record_violation(f"zombie: {what} of {self.name} was accepted after a newer instance had begun")

    async def _send_to_coordinator(self, client: Client, request: Any) -> Any:
        key = self.transactional_id
        try:
            return await self.owner.send_to_coordinator(client, key, request, key_type=TRANSACTION_KEY_TYPE)
        except (KafkaError, OSError, TimeoutError):
            self.owner.forget_coordinator(key, key_type=TRANSACTION_KEY_TYPE)
            raise

    async def _retry(self, doing: str, attempt: Callable[[Client], Awaitable[T]]) -> T:
        """Repeats an attempt until it succeeds. Raises Fenced, AbortableError, and NoAnswer after
        the delivery timeout or when the run is over."""
        loop = self.owner.loop
        until_s = loop.time() + self.timeouts.delivery_s
        is_unknown = False
        while True:
            try:
                return await attempt(await self._connect())
            except KafkaError as reason:
                if reason.code in FENCING:
                    raise Fenced(is_outcome_unknown=is_unknown) from reason
                if reason.code in ABORTABLE:
                    raise AbortableError(is_outcome_unknown=is_unknown) from reason
                self.owner.record_failure(f"{self.name}: {doing}", reason)
                self.owner.forget_coordinator(self.transactional_id, key_type=TRANSACTION_KEY_TYPE)
                # After any other error a coordinator or leader may have done what was requested.
                is_unknown |= reason.code is not ErrorCode.concurrent_transactions
            except (OSError, TimeoutError) as reason:
                self.owner.record_failure(f"{self.name}: {doing}", reason)
                is_unknown = True
                await self.disconnect()
            if loop.time() >= until_s or self.owner.stopping:
                raise NoAnswer
            await self.owner.pause()

    async def _connect(self) -> Client:
        if self._client is None:
            async with AsyncExitStack() as stack:
                self._client = await stack.enter_async_context(self.owner.connect(self.timeouts.request_s))
                self._connections = stack.pop_all()
        return self._client

    async def disconnect(self) -> None:
        self._client, connections, self._connections = None, self._connections, None
        if connections is not None:
            await connections.aclose()


ENDS_OF_A_SESSION = (Fenced, NoAnswer)


async def work_in_transaction(session: TransactionalSession, work: Callable[[], Awaitable[None]]) -> bool:
    """Runs `work` in a transaction and commits it. Returns False if it was aborted. Raises Fenced,
    NoAnswer: the session is unusable, and the outcome may be unknown."""
    await session.begin()
    try:
        await work()
        await session.commit()
    except AbortableError:
        await session.abort()
        return False
    except NoAnswer:
        if session.transaction is None or session.transaction.outcome is TransactionOutcome.unknown:
            raise
        await session.abort()  # the delivery timeout of another request than the commit is over
        return False
    return True
