"""Fetch as followers send it: leader epochs, diverging logs, acknowledgements, and sessions that
read only changed partitions.
"""

import asyncio
from asyncio import Future
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.api.list_offsets import list_offsets
from ottla_broker.replication.fetch_reading import ReplicaReader, without_records
from ottla_broker.replication.fetch_sessions import CachedPartition
from ottla_broker.replication.followers import Followers
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.reply import DelayedFetchResponse, Reply
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition, write_fetch_request
from ottla_broker.wire.fetch_response import FetchResponse, FetchResponsePartition, read_fetch_response
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP
from ottla_broker.wire.partition_requests import to_timedelta_field
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import ME, SmallBroker, append, batch, context
from tests.unit.api.calls import PLENTY, fetch_handler_of
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll

FOLLOWER, EPOCH = 2, 20


def add_replicated_topic(broker: SmallBroker, partitions: int = 1, name: str = "a") -> list[Partition]:
    """A topic that this broker leads. Brokers 2 and 3 are followers, and 2 is in the ISR."""
    added = broker.add_topic(name, partitions)
    for partition in added:
        state = msgspec.structs.replace(
            partition.registration, replicas=(ME, 2, 3), isr=(ME, 2), leader_epoch=5, partition_epoch=1
        )
        partition._cluster = AllRegistered()
        partition.update_registration(state)
    return added


class AllRegistered:
    """A view of the cluster in which each broker epoch is registered and no broker may join an
    ISR.
    """

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def is_in_session(self) -> bool:
        return True

    def is_alive(self, broker: int) -> bool:
        return True

    def may_join(self, broker: int, epoch: int) -> bool:
        return False

    def is_registered(self, broker: int, epoch: int) -> bool:
        return True

    def propose(self, partition: Partition) -> None:
        raise AssertionError


def call(
    handler: FetchHandler,
    broker: SmallBroker,
    partitions: dict[Partition, FetchRequestPartition],
    session: tuple[int, int] = (0, 0),
    *,
    wait_ms: int = 0,
    forget: list[Partition] | None = None,
    authorizer: Any = None,
    replica: int = FOLLOWER,
    isolation: int = 0,
) -> Reply:
    forgotten = [(partition.topic_id, partition.partition) for partition in forget or ()]
    requested = list(partitions.values())
    request = FetchRequest(replica, wait_ms, 1, 10 << 20, isolation, *session, requested, forgotten, None, EPOCH)
    frame = write_fetch_request(17, 1, "broker-2", request)[4:]
    return handler(context(broker, 17, authorizer), frame, read_request_header(frame), PLENTY)


def decode_immediate(reply: Any) -> FetchResponse:
    assert reply is not None
    assert not isinstance(reply, Future), "the handler waits"
    return read_fetch_response(bytearray(b"".join(reply))[4:])


async def decode_delayed(reply: Reply) -> FetchResponse:
    assert isinstance(reply, Future), "the handler does not wait"
    return decode_immediate(await asyncio.wait_for(reply, 10))


def fetch_at(
    partition: Partition, offset: int, epoch: int = 5, last_epoch: int = -1
) -> dict[Partition, FetchRequestPartition]:
    topic, index = partition.topic_id, partition.partition
    return {partition: FetchRequestPartition(topic, index, offset, 1 << 20, epoch, last_epoch, 0)}


def only_partition(response: FetchResponse) -> FetchResponsePartition:
    (partition,) = response.partitions
    return partition


@async_test
async def test_follower_reads_to_the_log_end_and_its_next_offset_acknowledges(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    first = decode_immediate(call(handler, broker, fetch_at(partition, 0)))
    assert len(only_partition(first).records) > 0
    assert only_partition(first).high_watermark == 0
    second = call(handler, broker, fetch_at(partition, 1, last_epoch=5), (first.session_id, 1), wait_ms=10_000)
    assert partition.log.high_watermark == 1
    partition.append_records(batch(b"2"), acks=1)
    response = only_partition(await decode_delayed(second))
    assert (response.high_watermark, len(response.records) > 0) == (1, True)


@async_test
async def test_records_that_a_producer_appends_when_its_last_are_committed_are_in_the_same_response(
    broker: SmallBroker,
) -> None:
    """Else nothing wakes the followers: the producer sends no more until these are committed."""
    first, last = add_replicated_topic(broker, 2)
    handler = fetch_handler_of(broker)

    def produce_more(_: KafkaError | None) -> None:
        first.append_records(batch(b"2"), acks=-1)

    last.call_when_committed(last.append_records(batch(b"1"), acks=-1), produce_more)
    decode_immediate(call(handler, broker, fetch_at(first, 0) | fetch_at(last, 0)))
    response = decode_immediate(call(handler, broker, fetch_at(first, 0) | fetch_at(last, 1, last_epoch=5)))
    assert last.log.high_watermark == 1
    assert [len(partition.records) > 0 for partition in response.partitions] == [True, False]


@async_test
async def test_rule_2_diverging_follower_gets_the_divergence_and_acknowledges_nothing(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    log = partition.log
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)  # in epoch 5
    log.epochs.assign(7, 3)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=7, partition_epoch=2))
    for offset, last, expected in ((5, 5, (5, 3)), (4, 6, (5, 3)), (2, 4, (4, 0)), (3, 7, None), (3, 5, None)):
        response = only_partition(decode_immediate(call(handler, broker, fetch_at(partition, offset, 7, last))))
        assert response.error is ErrorCode.none
        assert response.diverging == expected, (offset, last)
        follower = partition.leader.followers.get(FOLLOWER)
        assert follower is not None
        assert follower.log_end == (offset if expected is None else -1)
        partition.leader.followers = Followers()
        partition.leader.followers.set_replicas((2, 3), (1, 2))
    assert (
        only_partition(decode_immediate(call(handler, broker, fetch_at(partition, 3, 7, 8)))).error
        is ErrorCode.offset_out_of_range
    )


@async_test
async def test_invalid_fetches_of_followers_get_kafkas_errors(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    assert (
        only_partition(decode_immediate(call(handler, broker, fetch_at(partition, 9)))).error
        is ErrorCode.offset_out_of_range
    )
    fenced = only_partition(decode_immediate(call(handler, broker, fetch_at(partition, 0, epoch=4))))
    assert fenced.error is ErrorCode.fenced_leader_epoch
    not_a_replica = only_partition(decode_immediate(call(handler, broker, fetch_at(partition, 0), replica=9)))
    assert not_a_replica.error is ErrorCode.not_leader_or_follower
    rejected = decode_immediate(call(handler, broker, fetch_at(partition, 0), authorizer=DenyAll()))
    assert only_partition(rejected).error is ErrorCode.topic_authorization_failed


@async_test
async def test_fetch_with_a_newer_leader_epoch_waits_for_the_metadata(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    early = call(handler, broker, fetch_at(partition, 1, epoch=6, last_epoch=5), wait_ms=10_000)
    await asyncio.sleep(0)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=6, partition_epoch=2))
    assert partition.log.high_watermark == 0
    for _ in range(3):
        await asyncio.sleep(0)
    assert partition.log.high_watermark == 1
    assert only_partition(await decode_delayed(early)).high_watermark == 1
    late = call(handler, broker, fetch_at(partition, 1, epoch=7), wait_ms=20)
    assert only_partition(await decode_delayed(late)).error is ErrorCode.unknown_leader_epoch


@async_test
async def test_session_reads_only_changed_partitions(broker: SmallBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = add_replicated_topic(broker, 50)
    handler = fetch_handler_of(broker)
    topic = partitions[0].topic_id
    requested = [FetchRequestPartition(topic, p.partition, 0, 1 << 20, 5, -1, 0) for p in partitions]
    request = FetchRequest(FOLLOWER, 0, 1, 1 << 20, 0, 0, 0, requested, [], None, EPOCH)
    frame = write_fetch_request(17, 1, "broker-2", request)[4:]
    full = decode_immediate(handler(context(broker, 17), frame, read_request_header(frame), PLENTY))
    assert len(full.partitions) == 50
    read_partitions: list[int] = []
    read = ReplicaReader.read

    def recording_read(
        self: ReplicaReader, cached: CachedPartition, *args: Any, **kwargs: Any
    ) -> FetchResponsePartition:
        read_partitions.append(cached.request.partition)
        return read(self, cached, *args, **kwargs)

    monkeypatch.setattr(ReplicaReader, "read", recording_read)
    waiting = call(handler, broker, {}, (full.session_id, 1), wait_ms=10_000)
    assert read_partitions == []
    partitions[7].append_records(batch(b"7"), acks=1)
    partitions[9].append_records(batch(b"9"), acks=1)
    assert [it.partition for it in (await decode_delayed(waiting)).partitions] == [7, 9]
    assert set(read_partitions) == {7, 9}
    read_partitions.clear()
    response = decode_immediate(call(handler, broker, fetch_at(partitions[7], 1, last_epoch=5), (full.session_id, 2)))
    seven = only_partition(response)  # the records of 9 are not repeated without a request
    assert (seven.partition, seven.high_watermark, len(seven.records)) == (7, 1, 0)  # committed by this fetch
    again = decode_immediate(call(handler, broker, fetch_at(partitions[9], 0), (full.session_id, 3)))
    assert [(it.partition, len(it.records) > 0) for it in again.partitions] == [(9, True)]
    read_partitions.clear()
    assert decode_immediate(call(handler, broker, {}, (full.session_id, 4))).partitions == []
    assert read_partitions == []
    partitions[3].update_registration(
        msgspec.structs.replace(partitions[3].registration, leader=2, leader_epoch=6, partition_epoch=2)
    )
    lost = decode_immediate(call(handler, broker, {}, (full.session_id, 5)))
    assert [(it.partition, it.error) for it in lost.partitions] == [(3, ErrorCode.fenced_leader_epoch)]
    assert decode_immediate(call(handler, broker, {}, (full.session_id, 6), forget=[partitions[3]])).partitions == []


@async_test
async def test_higher_high_watermark_is_sent_with_the_next_response_and_completes_no_fetch(
    broker: SmallBroker,
) -> None:
    partitions = add_replicated_topic(broker, 2)
    handler = fetch_handler_of(broker)
    partitions[0].append_records(batch(b"1"), acks=1)
    first = decode_immediate(
        call(handler, broker, fetch_at(partitions[0], 1, last_epoch=5) | fetch_at(partitions[1], 0))
    )
    partitions[0].append_records(batch(b"2"), acks=1)
    two = decode_immediate(call(handler, broker, {}, (first.session_id, 1)))
    assert len(only_partition(two).records) > 0
    waiting = call(handler, broker, fetch_at(partitions[0], 2, last_epoch=5), (first.session_id, 2), wait_ms=10_000)
    assert partitions[0].log.high_watermark == 2
    for _ in range(3):
        await asyncio.sleep(0)
    assert isinstance(waiting, DelayedFetchResponse)
    assert not waiting.done()
    partitions[1].append_records(batch(b"x"), acks=1)
    response = await decode_delayed(waiting)
    assert [(it.partition, it.high_watermark) for it in response.partitions] == [(0, 2), (1, 0)]


@async_test
async def test_commit_of_records_of_earlier_leaders_completes_a_fetch(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)
    partition.update_registration(
        msgspec.structs.replace(partition.registration, isr=(ME, 3), leader_epoch=6, partition_epoch=2)
    )
    handler = fetch_handler_of(broker)
    first = decode_immediate(call(handler, broker, fetch_at(partition, 3, 6, last_epoch=5)))
    assert only_partition(first).high_watermark == 0
    waiting = call(handler, broker, {}, (first.session_id, 1), wait_ms=10_000)
    await asyncio.sleep(0)
    assert isinstance(waiting, DelayedFetchResponse)
    partition.leader.record_fetch(3, EPOCH, 3, 0)
    assert only_partition(await decode_delayed(waiting)).high_watermark == 3


@async_test
async def test_high_watermark_is_sent_again_to_a_follower_that_may_have_ignored_it(broker: SmallBroker) -> None:
    """A follower ignores responses for an offset that it no longer requests, and, if its log
    diverges, all but the divergence.
    """
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    first = decode_immediate(call(handler, broker, fetch_at(partition, 1, last_epoch=5)))
    assert only_partition(first).high_watermark == 1
    diverging = decode_immediate(call(handler, broker, fetch_at(partition, 3, last_epoch=5), (first.session_id, 1)))
    assert only_partition(diverging).diverging == (5, 1)
    waiting = call(handler, broker, fetch_at(partition, 1, last_epoch=5), (first.session_id, 2), wait_ms=20)
    assert only_partition(await decode_delayed(waiting)).high_watermark == 1
    assert (await decode_delayed(call(handler, broker, {}, (first.session_id, 3), wait_ms=20))).partitions == []


@async_test
async def test_completed_fetch_does_not_report_an_error_that_may_pass(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    waiting = call(fetch_handler_of(broker), broker, fetch_at(partition, 0, epoch=6), wait_ms=10_000)
    assert isinstance(waiting, DelayedFetchResponse)
    waiting.force_complete()
    assert decode_immediate(await waiting).partitions == []


@async_test
async def test_replaced_sessions_leave_a_bounded_number_of_waiters(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    for _ in range(10):  # a follower that lost its connection does not know its former session
        decode_immediate(call(handler, broker, fetch_at(partition, 0)))
    assert len(partition.log_end_waiters.waiting) == 4
    assert len(partition.read_waiters.waiting) == 4
    assert len(handler.sessions) == 0


@async_test
async def test_new_leader_reports_no_high_watermark_to_consumers_before_it_is_known(
    broker: SmallBroker,
) -> None:
    (partition,) = add_replicated_topic(broker)
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 2, 0)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=6, partition_epoch=2))
    assert (partition.log.high_watermark, partition.has_reached_epoch_start) == (2, False)
    handler = fetch_handler_of(broker)

    def consume(offset: int, wait_ms: int) -> Reply:
        return call(handler, broker, fetch_at(partition, offset, 6), (0, -1), wait_ms=wait_ms, replica=-1)

    below = only_partition(decode_immediate(consume(1, 0)))
    assert (below.error, below.high_watermark, len(below.records) > 0) == (ErrorCode.none, -1, True)
    assert only_partition(decode_immediate(consume(2, 0))).error is ErrorCode.offset_not_available
    redirected = FetchRequestPartition(partition.topic_id, partition.partition, offset=0, max_bytes=1)
    assert without_records(partition, redirected).high_watermark == -1
    waiting = consume(2, 10_000)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 3, 0)
    assert without_records(partition, redirected).high_watermark == 3
    response = only_partition(await decode_delayed(waiting))
    assert (response.error, response.high_watermark, len(response.records) > 0) == (ErrorCode.none, 3, True)


@async_test
async def test_last_stable_offset_never_falls_for_consumers_when_the_leader_changes(broker: SmallBroker) -> None:
    """The new leader does not know yet that the marker is replicated. Its predecessor may have."""
    (partition,) = add_replicated_topic(broker)
    partition.append_records(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), acks=1)
    marker = encode_end_transaction_marker(True, 0, producer_id=7, producer_epoch=0, timestamp_ms=1_000)
    partition.append_records(marker, acks=1, from_client=False)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 1, 0)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=6, partition_epoch=2))
    assert (partition.log.high_watermark, partition.log.last_stable_offset) == (1, 0)
    handler = fetch_handler_of(broker)

    def consume(offset: int, wait_ms: int = 0) -> Reply:
        at = fetch_at(partition, offset, 6)
        return call(handler, broker, at, (0, -1), wait_ms=wait_ms, replica=-1, isolation=1)

    async def latest() -> Any:
        wanted = ListOffsetsPartition(
            partition_index=i32(0), current_leader_epoch=i32(6), timestamp=i64(LATEST_TIMESTAMP)
        )
        topic = ListOffsetsTopic(name=TopicName(partition.topic), partitions=(wanted,))
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1), isolation_level=i8(1), topics=(topic,), timeout=to_timedelta_field(1)
        )
        with patch("ottla_broker.api.list_offsets.MAX_WAIT_S", 0.01):
            response = await list_offsets(context(broker, 11), request)
        return response.topics[0].partitions[0]

    below = only_partition(decode_immediate(consume(0)))
    assert (below.error, below.last_stable_offset, bytes(below.records)) == (ErrorCode.none, -1, b"")
    assert only_partition(decode_immediate(consume(2))).error is ErrorCode.offset_not_available
    assert (await latest()).error_code is ErrorCode.offset_not_available
    waiting = consume(2, 10_000)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 2, 0)
    assert (await latest()).offset == 2
    assert only_partition(decode_immediate(consume(0))).last_stable_offset == 2
    append(partition, b"next")
    partition.leader.record_fetch(FOLLOWER, EPOCH, 3, 0)
    response = only_partition(await decode_delayed(waiting))
    assert (response.error, response.last_stable_offset) == (ErrorCode.none, 3)


@async_test
async def test_offset_is_recorded_again_after_a_delayed_fetch_of_an_earlier_session(broker: SmallBroker) -> None:
    """A follower names an offset once. A request that waited in the socket of its former connection
    would otherwise set it back until more records are appended, which min.insync.replicas may
    forbid meanwhile.
    """
    (partition,) = add_replicated_topic(broker)
    for _ in range(4):
        append(partition, b"x")
    handler = fetch_handler_of(broker)
    earlier = decode_immediate(call(handler, broker, fetch_at(partition, 0))).session_id
    current = decode_immediate(call(handler, broker, fetch_at(partition, 3))).session_id
    follower = partition.leader.followers.get(FOLLOWER)
    assert follower is not None and follower.log_end == 3
    call(handler, broker, fetch_at(partition, 1), (earlier, 1))
    call(handler, broker, {}, (current, 1))
    assert follower.log_end == 3
