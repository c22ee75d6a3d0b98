"""Fetch sessions of followers: which partitions are read and reported again."""

from typing import Any

import msgspec
import pytest

from ottla_broker.replication.fetch_reading import ReplicaReader
from ottla_broker.replication.fetch_sessions import CachedPartition
from ottla_broker.requests.reply import DelayedFetchResponse
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition, write_fetch_request
from ottla_broker.wire.fetch_response import FetchResponsePartition
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import SmallBroker, append, batch, context
from tests.unit.api.calls import PLENTY, fetch_handler_of
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
    waiting = call_fetch_of_follower(handler, broker, {}, (full.session_id, 1), wait_ms=10_000)
    assert read_partitions == []
    partitions[7].append_records(batch(b"7"), acks=1)
    partitions[9].append_records(batch(b"9"), acks=1)
    assert [it.partition for it in (await decode_delayed(waiting)).partitions] == [7, 9]
    assert set(read_partitions) == {7, 9}
    read_partitions.clear()
    response = decode_immediate(
        call_fetch_of_follower(handler, broker, fetch_at(partitions[7], 1, last_epoch=5), (full.session_id, 2))
    )
    seven = only_partition(response)  # the records of 9 are not repeated without a request
    assert (seven.partition, seven.high_watermark, len(seven.records)) == (7, 1, 0)  # committed by this fetch
    again = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partitions[9], 0), (full.session_id, 3)))
    assert [(it.partition, len(it.records) > 0) for it in again.partitions] == [(9, True)]
    read_partitions.clear()
    assert decode_immediate(call_fetch_of_follower(handler, broker, {}, (full.session_id, 4))).partitions == []
    assert read_partitions == []
    partitions[3].update_registration(
        msgspec.structs.replace(partitions[3].registration, leader=2, leader_epoch=6, partition_epoch=2)
    )
    lost = decode_immediate(call_fetch_of_follower(handler, broker, {}, (full.session_id, 5)))
    assert [(it.partition, it.error) for it in lost.partitions] == [(3, ErrorCode.fenced_leader_epoch)]
    assert (
        decode_immediate(
            call_fetch_of_follower(handler, broker, {}, (full.session_id, 6), forget=[partitions[3]])
        ).partitions
        == []
    )


@async_test
async def test_higher_high_watermark_is_sent_with_the_next_response_and_completes_no_fetch(
    broker: SmallBroker,
) -> None:
    partitions = add_replicated_topic(broker, 2)
    handler = fetch_handler_of(broker)
    partitions[0].append_records(batch(b"1"), acks=1)
    first = decode_immediate(
        call_fetch_of_follower(handler, broker, fetch_at(partitions[0], 1, last_epoch=5) | fetch_at(partitions[1], 0))
    )
    partitions[0].append_records(batch(b"2"), acks=1)
    two = decode_immediate(call_fetch_of_follower(handler, broker, {}, (first.session_id, 1)))
    assert len(only_partition(two).records) > 0
    waiting = call_fetch_of_follower(
        handler, broker, fetch_at(partitions[0], 2, last_epoch=5), (first.session_id, 2), wait_ms=10_000
    )
    assert partitions[0].log.high_watermark == 2
    await run_event_loop()
    assert isinstance(waiting, DelayedFetchResponse)
    assert not waiting.done()
    partitions[1].append_records(batch(b"x"), acks=1)
    response = await decode_delayed(waiting)
    assert [(it.partition, it.high_watermark) for it in response.partitions] == [(0, 2), (1, 0)]


@async_test
async def test_high_watermark_is_sent_again_to_a_follower_that_may_have_ignored_it(broker: SmallBroker) -> None:
    """A follower ignores responses for an offset that it no longer requests, and, if its log
    diverges, all but the divergence.
    """
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    first = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 1, last_epoch=5)))
    assert only_partition(first).high_watermark == 1
    diverging = decode_immediate(
        call_fetch_of_follower(handler, broker, fetch_at(partition, 3, last_epoch=5), (first.session_id, 1))
    )
    assert only_partition(diverging).diverging == (5, 1)
    waiting = call_fetch_of_follower(
        handler, broker, fetch_at(partition, 1, last_epoch=5), (first.session_id, 2), wait_ms=20
    )
    assert only_partition(await decode_delayed(waiting)).high_watermark == 1
    assert (
        await decode_delayed(call_fetch_of_follower(handler, broker, {}, (first.session_id, 3), wait_ms=20))
    ).partitions == []


@async_test
async def test_replaced_sessions_leave_a_bounded_number_of_waiters(broker: SmallBroker) -> None:
    (partition,) = add_replicated_topic(broker)
    handler = fetch_handler_of(broker)
    for _ in range(10):  # a follower that lost its connection does not know its former session
        decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 0)))
    assert len(partition.log_end_waiters.waiting) == 4
    assert len(partition.read_waiters.waiting) == 4
    assert len(handler.sessions) == 0


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
    earlier = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 0))).session_id
    current = decode_immediate(call_fetch_of_follower(handler, broker, fetch_at(partition, 3))).session_id
    follower = partition.leader.followers.get(FOLLOWER)
    assert follower is not None and follower.log_end == 3
    call_fetch_of_follower(handler, broker, fetch_at(partition, 1), (earlier, 1))
    call_fetch_of_follower(handler, broker, {}, (current, 1))
    assert follower.log_end == 3
