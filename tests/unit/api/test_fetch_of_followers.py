"""Fetch as followers send it: leader epochs, diverging logs and acknowledgements."""

import asyncio
from typing import Any
from unittest.mock import patch

import msgspec
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.api.list_offsets import list_offsets
from ottla_broker.replication.fetch_reading import response_without_records
from ottla_broker.replication.followers import Followers
from ottla_broker.requests.reply import DelayedFetchResponse, Reply
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import FetchRequestPartition
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.unit.api.brokers import ME, SmallBroker, append, batch, context
from tests.unit.api.calls import fetch_handler_of
from tests.unit.api.follower_fetches import (
    EPOCH,
    FOLLOWER,
    add_replicated_topic,
    call_fetch_of_follower,
    decode_delayed,
    decode_immediate,
    fetch_at,
    only_partition,
)
from tests.unit.async_tests import async_test, run_event_loop
from tests.unit.authorizers import DenyAll


@async_test
async def test_follower_reads_to_the_log_end_and_its_next_offset_acknowledges(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    first = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 0)))
    assert len(only_partition(first).records) > 0
    assert only_partition(first).high_watermark == 0
    second = call_fetch_of_follower(
        handler, broker, fetch_at(partition, 1, last_epoch=5), (first.session_id, 1), wait_ms=10_000
    )
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
    decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(first, 0) | fetch_at(last, 0)))
    response = decode_immediate(
        call_fetch_of_follower(handler, broker, fetch_at(first, 0) | fetch_at(last, 1, last_epoch=5))
    )
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
        response = only_partition(
            decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, offset, 7, last)))
        )
        assert response.error is ErrorCode.none
        assert response.diverging == expected, (offset, last)
        follower = partition.leader.followers.get(FOLLOWER)
        assert follower is not None
        assert follower.log_end == (offset if expected is None else -1)
        partition.leader.followers = Followers()
        partition.leader.followers.set_replicas((2, 3), (1, 2))
    assert (
        only_partition(decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 3, 7, 8)))).error
        is ErrorCode.offset_out_of_range
    )


@async_test
async def test_invalid_fetches_of_followers_get_kafkas_errors(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    assert (
        only_partition(decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 9)))).error
        is ErrorCode.offset_out_of_range
    )
    fenced = only_partition(decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 0, epoch=4))))
    assert fenced.error is ErrorCode.fenced_leader_epoch
    not_a_replica = only_partition(
        decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 0), replica=9))
    )
    assert not_a_replica.error is ErrorCode.not_leader_or_follower
    rejected = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 0), authorizer=DenyAll()))
    assert only_partition(rejected).error is ErrorCode.topic_authorization_failed


@async_test
async def test_fetch_with_a_newer_leader_epoch_waits_for_the_metadata(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    early = call_fetch_of_follower(handler, broker, fetch_at(partition, 1, epoch=6, last_epoch=5), wait_ms=10_000)
    await asyncio.sleep(0)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=6, partition_epoch=2))
    assert partition.log.high_watermark == 0
    await run_event_loop()
    assert partition.log.high_watermark == 1
    assert only_partition(await decode_delayed(early)).high_watermark == 1
    late = call_fetch_of_follower(handler, broker, fetch_at(partition, 1, epoch=7), wait_ms=20)
    assert only_partition(await decode_delayed(late)).error is ErrorCode.unknown_leader_epoch


@async_test
async def test_commit_of_records_of_earlier_leaders_completes_a_fetch(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)
    partition.update_registration(
        msgspec.structs.replace(partition.registration, isr=(ME, 3), leader_epoch=6, partition_epoch=2)
    )
    handler = fetch_handler_of(broker)
    first = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 3, 6, last_epoch=5)))
    assert only_partition(first).high_watermark == 0
    waiting = call_fetch_of_follower(handler, broker, {}, (first.session_id, 1), wait_ms=10_000)
    await asyncio.sleep(0)
    assert isinstance(waiting, DelayedFetchResponse)
    partition.leader.record_fetch(3, EPOCH, 3, 0)
    assert only_partition(await decode_delayed(waiting)).high_watermark == 3


@async_test
async def test_completed_fetch_does_not_report_an_error_that_may_pass(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    waiting = call_fetch_of_follower(fetch_handler_of(broker), broker, fetch_at(partition, 0, epoch=6), wait_ms=10_000)
    assert isinstance(waiting, DelayedFetchResponse)
    waiting.force_complete()
    assert decode_immediate(await waiting).partitions == []


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
        return call_fetch_of_follower(
            handler, broker, fetch_at(partition, offset, 6), (0, -1), wait_ms=wait_ms, replica=-1
        )

    below = only_partition(decode_immediate(consume(1, 0)))
    assert (below.error, below.high_watermark, len(below.records) > 0) == (ErrorCode.none, -1, True)
    assert only_partition(decode_immediate(consume(2, 0))).error is ErrorCode.offset_not_available
    redirected = FetchRequestPartition(partition.topic_id, partition.partition, offset=0, max_bytes=1)
    assert response_without_records(partition, redirected).high_watermark == -1
    waiting = consume(2, 10_000)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 3, 0)
    assert response_without_records(partition, redirected).high_watermark == 3
    response = only_partition(await decode_delayed(waiting))
    assert (response.error, response.high_watermark, len(response.records) > 0) == (ErrorCode.none, 3, True)


@async_test
async def test_last_stable_offset_never_falls_for_consumers_when_the_leader_changes(broker: SmallBroker) -> None:
    """The new leader does not know yet that the marker is replicated. Its predecessor may have
    known it, and let consumers read the transaction.
    """
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
        return call_fetch_of_follower(handler, broker, at, (0, -1), wait_ms=wait_ms, replica=-1, isolation=1)

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
