"""Transactions: those that coordinators keep, those that are open in partitions, and those that no
coordinator will end (KIP-664).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import TransactionState
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v1.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.static.primitive import i16, i32, i32Timedelta, i64

from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, none_on_error, raise_for_error
from ottla_operator.kafka.offsets import TopicPartition, group_by_topic
from ottla_operator.kafka.topics import TopicDescription

KNOWN_STATES: Final = (
    "states are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence, Dead"
)
FENCING_TIMEOUT: Final = i32Timedelta.parse(timedelta(minutes=1))
"""transaction.timeout.ms of a producer that only fences the previous one and begins nothing."""
FENCING_RETRY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """`coordinator`: the broker. `state`: Empty, Ongoing, PrepareCommit, CompleteAbort, …"""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`started`: None without a transaction. `partitions`: those of the open transaction; in
    PrepareCommit and PrepareAbort those that may still lack their marker.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started: datetime | None
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition's leader remembers. `last_timestamp_ms`: timestamp of its last
    batch. `coordinator_epoch`: epoch in its last marker, −1 before the first. `transaction_start`:
    start offset of its open transaction; None if it has none.
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int | None


async def list_transactions(
    client: KafkaClient,
    brokers: Iterable[int],
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    running_longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """Transactional ids that the brokers coordinate, sorted. Apache Kafka before 3.8 ignores
    `running_longer_than_ms`, and before 4.1 `pattern` (a regular expression of RE2). Raises
    KafkaError, also for an unknown state.
    """
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(ProducerId(i64(it)) for it in producer_ids),
        duration_filter=i64(running_longer_than_ms),
        transactional_id_pattern=pattern,
    )
    ids = list(brokers)
    responses = await asyncio.gather(*(client.send(request, broker=it) for it in ids))
    found: list[TransactionListing] = []
    for broker, response in zip(ids, responses, strict=True):
        raise_for_error(response.error_code, None, f"transactions of broker {broker}")
        if response.unknown_state_filters:
            unknown = ", ".join(map(repr, response.unknown_state_filters))
            raise KafkaError(ErrorCode.invalid_request, f"broker {broker} knows no state {unknown}; {KNOWN_STATES}")
        found += [
            TransactionListing(it.transactional_id, broker, int(it.producer_id), it.transaction_state)
            for it in response.transaction_states
        ]
    return sorted(found, key=lambda it: it.transactional_id)


async def describe_transaction(client: KafkaClient, transactional_id: str) -> TransactionDescription:
    """Raises KafkaError: TRANSACTIONAL_ID_NOT_FOUND."""
    request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))
    (found,) = (await client.send_to_transaction_coordinator(transactional_id, request)).transaction_states
    message = (
        f"there is no transactional id {transactional_id!r}"
        if found.error_code is ErrorCode.transactional_id_not_found
        else None
    )
    raise_for_error(found.error_code, message, f"transactional id {transactional_id!r}")
    return _description(found)


def _description(state: TransactionState) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        int(state.producer_id),
        int(state.producer_epoch),
        state.transaction_state,
        state.transaction_timeout // timedelta(milliseconds=1),
        state.transaction_start_time,  # None where the response has −1
        frozenset((topic.topic, int(it)) for topic in state.topics for it in topic.partitions),
    )


async def fence_producer(client: KafkaClient, transactional_id: str, timeout_s: float) -> None:
    """Fences the producer of a transactional id, and has its open transaction aborted. Raises
    KafkaError, also when the abort is not complete after `timeout_s`.
    """
    request = InitProducerIdRequest(
        transactional_id=TransactionalId(transactional_id), transaction_timeout=FENCING_TIMEOUT
    )
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        response = await client.send_to_transaction_coordinator(transactional_id, request)
        is_late = asyncio.get_running_loop().time() > deadline
        if response.error_code is not ErrorCode.concurrent_transactions or is_late:
            raise_for_error(response.error_code, None, f"transactional id {transactional_id!r}")
            return
        await asyncio.sleep(FENCING_RETRY_S)


async def describe_producers(client: KafkaClient, topics: Iterable[TopicDescription]) -> list[ActiveProducer]:
    """The active producers of every partition that has a leader."""
    leaders = {(topic.name, it.index): it.leader for topic in topics for it in topic.partitions if it.leader >= 0}
    answers = await asyncio.gather(
        *(
            _describe_producers_of(client, leader, [at for at, other in leaders.items() if other == leader])
            for leader in sorted(set(leaders.values()))
        )
    )
    return sorted(
        (producer for answer in answers for producer in answer),
        key=lambda it: (it.topic, it.partition, it.producer_id),
    )


async def _describe_producers_of(
    client: KafkaClient, leader: int, partitions: Iterable[TopicPartition]
) -> list[ActiveProducer]:
    topics = tuple(
        TopicRequest(name=TopicName(topic), partition_indexes=tuple(indexes))
        for topic, indexes in group_by_topic(partitions).items()
    )
    found: list[ActiveProducer] = []
    for topic in (await client.send(DescribeProducersRequest(topics=topics), broker=leader)).topics:
        for partition in topic.partitions:
            subject = f"partition {topic.name}-{partition.partition_index}"
            raise_for_error(partition.error_code, partition.error_message, subject)
            found += [
                ActiveProducer(
                    topic.name,
                    int(partition.partition_index),
                    int(it.producer_id),
                    int(it.producer_epoch),
                    int(it.last_sequence),
                    int(it.last_timestamp),
                    int(it.coordinator_epoch),
                    int(it.current_txn_start_offset) if it.current_txn_start_offset >= 0 else None,
                )
                for it in partition.active_producers
            ]
    return found


async def find_hanging_transactions(
    client: KafkaClient, brokers: Iterable[int], topics: Iterable[TopicDescription], *, silent_since_ms: int
) -> list[tuple[ActiveProducer, str | None]]:
    """Open transactions that no coordinator will end, each with its transactional id (None if no
    coordinator knows its producer). `silent_since_ms`: transactions with a later record are
    ignored; a coordinator ends those that are older than `transaction.max.timeout.ms`.
    """
    open_ = [
        it
        for it in await describe_producers(client, topics)
        if it.transaction_start is not None and it.last_timestamp_ms <= silent_since_ms
    ]
    if not open_:
        return []
    listed = await list_transactions(client, brokers, producer_ids={it.producer_id for it in open_})
    described = await asyncio.gather(*(_describe_known(client, it.transactional_id) for it in listed))
    return select_hanging_transactions(open_, {it.producer_id: it for it in described if it is not None})


async def _describe_known(client: KafkaClient, transactional_id: str) -> TransactionDescription | None:
    """None for an id that has expired since it was listed."""
    return await none_on_error(describe_transaction(client, transactional_id), ErrorCode.transactional_id_not_found)


def select_hanging_transactions(
    open_: Iterable[ActiveProducer], by_producer_id: Mapping[int, TransactionDescription]
) -> list[tuple[ActiveProducer, str | None]]:
    """The open transactions whose coordinator does not know of the partition, so that it will never
    send a marker there, each with its transactional id (None if no coordinator knows its producer).
    """
    found: list[tuple[ActiveProducer, str | None]] = []
    for producer in open_:
        transaction = by_producer_id.get(producer.producer_id)
        if transaction is None:
            found.append((producer, None))
        elif (producer.topic, producer.partition) not in transaction.partitions:
            found.append((producer, transaction.transactional_id))
    return found


async def abort_in_partition(
    client: KafkaClient, partition: TopicPartition, leader: int, producer_id: int, epoch: int, coordinator_epoch: int
) -> None:
    """Writes an abort marker to one partition. Raises KafkaError. A `coordinator_epoch` of −1, that
    of a producer without a marker so far, is sent as 0: such a partition accepts any epoch.
    """
    marker = WritableTxnMarker(
        producer_id=ProducerId(i64(producer_id)),
        producer_epoch=i16(epoch),
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=TopicName(partition[0]), partition_indexes=(i32(partition[1]),)),),
        coordinator_epoch=i32(max(0, coordinator_epoch)),
    )
    response = await client.send(WriteTxnMarkersRequest(markers=(marker,)), broker=leader)
    for result in response.markers:
        for topic in result.topics:
            for written in topic.partitions:
                raise_for_error(written.error_code, None, f"partition {topic.name}-{written.partition_index}")
