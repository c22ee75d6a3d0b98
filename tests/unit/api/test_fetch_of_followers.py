"""Fetch as followers send it: epochs, logs that diverge, progress, sessions that read only what changed."""

import asyncio
from asyncio import Future
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.replication.fetch_reading import ReplicaReader, without_records
from ottla_broker.replication.fetch_sessions import CachedPartition
from ottla_broker.replication.followers import Followers
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.context import DelayedFetchResponse, Reply
from ottla_broker.wire.codec import read_request_header
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition, write_fetch_request
from ottla_broker.wire.fetch_response import FetchResponse, FetchResponsePartition, read_fetch_response
from tests.unit.api.brokers import ME, SmallBroker, batch, context
from tests.unit.api.calls import PLENTY, fetch_handler_of
from tests.unit.api.test_fetch import on_a_loop
from tests.unit.api.test_produce import Nobody

FOLLOWER, EPOCH = 2, 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    made = SmallBroker(tmp_path)
    yield made
    made.close()


def replicated(broker: SmallBroker, partitions: int = 1, name: str = "a") -> list[Partition]:
    """Led here, with brokers 2 and 3 as followers, of which 2 is in the ISR."""
    made = broker.add_topic(name, partitions)
    for partition in made:
        state = msgspec.structs.replace(
            partition.registration, replicas=(ME, 2, 3), isr=(ME, 2), leader_epoch=5, partition_epoch=1
        )
        partition._cluster = Known()
        partition.update_registration(state)
    return made


class Known:
    """Peers of whom every life is registered, and nobody may join."""

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

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
    wanted: dict[Partition, FetchRequestPartition],
    session: tuple[int, int] = (0, 0),
    *,
    wait_ms: int = 0,
    forget: list[Partition] | None = None,
    authorizer: Any = None,
    replica: int = FOLLOWER,
) -> Reply:
    forgotten = [(partition.topic_id, partition.partition) for partition in forget or ()]
    partitions = list(wanted.values())
    request = FetchRequest(replica, wait_ms, 1, 10 << 20, 0, *session, partitions, forgotten, None, EPOCH)
    frame = write_fetch_request(17, 1, "broker-2", request)[4:]
    return handler(context(broker, 17, authorizer), frame, read_request_header(frame), PLENTY)


def heard(reply: Any) -> FetchResponse:
    assert reply is not None
    assert not isinstance(reply, Future), "it waits"
    return read_fetch_response(bytearray(b"".join(reply))[4:])


async def heard_later(reply: Reply) -> FetchResponse:
    assert isinstance(reply, Future), "it does not wait"
    return heard(await asyncio.wait_for(reply, 10))


def want(
    partition: Partition, offset: int, epoch: int = 5, last_epoch: int = -1
) -> dict[Partition, FetchRequestPartition]:
    topic, index = partition.topic_id, partition.partition
    return {partition: FetchRequestPartition(topic, index, offset, 1 << 20, epoch, last_epoch, 0)}


def only(response: FetchResponse) -> FetchResponsePartition:
    (got,) = response.partitions
    return got


@on_a_loop
async def test_a_follower_reads_to_the_end_and_its_next_offset_is_its_ack(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    first = heard(call(handler, broker, want(partition, 0)))
    assert len(only(first).records) > 0
    assert only(first).high_watermark == 0
    second = call(handler, broker, want(partition, 1, last_epoch=5), (first.session_id, 1), wait_ms=10_000)
    assert partition.log.high_watermark == 1
    partition.append_records(batch(b"2"), acks=1)
    got = only(await heard_later(second))
    assert (got.high_watermark, len(got.records) > 0) == (1, True)


@on_a_loop
async def test_rule_2_a_log_that_parts_from_ours_is_told_where_and_its_offset_is_no_ack(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    handler = fetch_handler_of(broker)
    log = partition.log
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)  # in epoch 5
    log.epochs.assign(7, 3)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=7, partition_epoch=2))
    for offset, last, expected in ((5, 5, (5, 3)), (4, 6, (5, 3)), (2, 4, (4, 0)), (3, 7, None), (3, 5, None)):
        got = only(heard(call(handler, broker, want(partition, offset, 7, last))))
        assert got.error is ErrorCode.none
        assert got.diverging == expected, (offset, last)
        follower = partition.leader.followers.get(FOLLOWER)
        assert follower is not None
        assert follower.log_end == (offset if expected is None else -1)
        partition.leader.followers = Followers()
        partition.leader.followers.set_replicas((2, 3), (1, 2))
    assert only(heard(call(handler, broker, want(partition, 3, 7, 8)))).error is ErrorCode.offset_out_of_range


@on_a_loop
async def test_codes_for_followers(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    handler = fetch_handler_of(broker)
    assert only(heard(call(handler, broker, want(partition, 9)))).error is ErrorCode.offset_out_of_range
    fenced = only(heard(call(handler, broker, want(partition, 0, epoch=4))))
    assert fenced.error is ErrorCode.fenced_leader_epoch
    stranger = only(heard(call(handler, broker, want(partition, 0), replica=9)))
    assert stranger.error is ErrorCode.not_leader_or_follower
    refused = heard(call(handler, broker, want(partition, 0), authorizer=Nobody()))
    assert refused.error is ErrorCode.cluster_authorization_failed


@on_a_loop
async def test_a_follower_of_an_epoch_that_we_do_not_know_yet_waits_for_our_metadata(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    early = call(handler, broker, want(partition, 1, epoch=6, last_epoch=5), wait_ms=10_000)
    await asyncio.sleep(0)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=6, partition_epoch=2))
    assert partition.log.high_watermark == 0
    for _ in range(3):
        await asyncio.sleep(0)
    assert partition.log.high_watermark == 1
    assert only(await heard_later(early)).high_watermark == 1
    late = call(handler, broker, want(partition, 1, epoch=7), wait_ms=20)
    assert only(await heard_later(late)).error is ErrorCode.unknown_leader_epoch


@on_a_loop
async def test_a_session_looks_only_at_what_has_changed(broker: SmallBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = replicated(broker, 50)
    handler = fetch_handler_of(broker)
    topic = partitions[0].topic_id
    wanted = [FetchRequestPartition(topic, p.partition, 0, 1 << 20, 5, -1, 0) for p in partitions]
    request = FetchRequest(FOLLOWER, 0, 1, 1 << 20, 0, 0, 0, wanted, [], None, EPOCH)
    frame = write_fetch_request(17, 1, "broker-2", request)[4:]
    full = heard(handler(context(broker, 17), frame, read_request_header(frame), PLENTY))
    assert len(full.partitions) == 50
    looked: list[int] = []
    read = ReplicaReader.read

    def note(self: ReplicaReader, cached: CachedPartition, *how: Any, **named: Any) -> FetchResponsePartition:
        looked.append(cached.request.partition)
        return read(self, cached, *how, **named)

    monkeypatch.setattr(ReplicaReader, "read", note)
    waiting = call(handler, broker, {}, (full.session_id, 1), wait_ms=10_000)
    assert looked == []
    partitions[7].append_records(batch(b"7"), acks=1)
    partitions[9].append_records(batch(b"9"), acks=1)
    assert [got.partition for got in (await heard_later(waiting)).partitions] == [7, 9]
    assert set(looked) == {7, 9}
    looked.clear()
    answer = heard(call(handler, broker, want(partitions[7], 1, last_epoch=5), (full.session_id, 2)))
    seven = only(answer)  # what was told of 9 is not told again unasked
    assert (seven.partition, seven.high_watermark, len(seven.records)) == (7, 1, 0)  # it is committed now
    again = heard(call(handler, broker, want(partitions[9], 0), (full.session_id, 3)))
    assert [(got.partition, len(got.records) > 0) for got in again.partitions] == [(9, True)]
    looked.clear()
    assert heard(call(handler, broker, {}, (full.session_id, 4))).partitions == []
    assert looked == []
    partitions[3].update_registration(
        msgspec.structs.replace(partitions[3].registration, leader=2, leader_epoch=6, partition_epoch=2)
    )
    lost = heard(call(handler, broker, {}, (full.session_id, 5)))
    assert [(got.partition, got.error) for got in lost.partitions] == [(3, ErrorCode.fenced_leader_epoch)]
    assert heard(call(handler, broker, {}, (full.session_id, 6), forget=[partitions[3]])).partitions == []


@on_a_loop
async def test_a_high_watermark_that_rises_goes_along_with_the_next_answer_and_wakes_nobody(
    broker: SmallBroker,
) -> None:
    partitions = replicated(broker, 2)
    handler = fetch_handler_of(broker)
    partitions[0].append_records(batch(b"1"), acks=1)
    first = heard(call(handler, broker, want(partitions[0], 1, last_epoch=5) | want(partitions[1], 0)))
    partitions[0].append_records(batch(b"2"), acks=1)
    two = heard(call(handler, broker, {}, (first.session_id, 1)))
    assert len(only(two).records) > 0
    waiting = call(handler, broker, want(partitions[0], 2, last_epoch=5), (first.session_id, 2), wait_ms=10_000)
    assert partitions[0].log.high_watermark == 2
    for _ in range(3):
        await asyncio.sleep(0)
    assert isinstance(waiting, DelayedFetchResponse)
    assert not waiting.done()
    partitions[1].append_records(batch(b"x"), acks=1)
    answer = await heard_later(waiting)
    assert [(got.partition, got.high_watermark) for got in answer.partitions] == [(0, 2), (1, 0)]


@on_a_loop
async def test_that_what_earlier_leaders_appended_is_committed_is_told_at_once(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)
    partition.update_registration(
        msgspec.structs.replace(partition.registration, isr=(ME, 3), leader_epoch=6, partition_epoch=2)
    )
    handler = fetch_handler_of(broker)
    first = heard(call(handler, broker, want(partition, 3, 6, last_epoch=5)))
    assert only(first).high_watermark == 0
    waiting = call(handler, broker, {}, (first.session_id, 1), wait_ms=10_000)
    await asyncio.sleep(0)
    assert isinstance(waiting, DelayedFetchResponse)
    partition.leader.record_fetch(3, EPOCH, 3, 0)
    assert only(await heard_later(waiting)).high_watermark == 3


@on_a_loop
async def test_a_follower_that_asks_anew_is_told_again_what_it_may_have_passed_over(broker: SmallBroker) -> None:
    """It passes over answers that are about an offset which it does not want any more, and where its log parts from ours it only learns that."""
    (partition,) = replicated(broker)
    handler = fetch_handler_of(broker)
    partition.append_records(batch(b"1"), acks=1)
    first = heard(call(handler, broker, want(partition, 1, last_epoch=5)))
    assert only(first).high_watermark == 1
    parting = heard(call(handler, broker, want(partition, 3, last_epoch=5), (first.session_id, 1)))
    assert only(parting).diverging == (5, 1)
    waiting = call(handler, broker, want(partition, 1, last_epoch=5), (first.session_id, 2), wait_ms=20)
    assert only(await heard_later(waiting)).high_watermark == 1
    assert (await heard_later(call(handler, broker, {}, (first.session_id, 3), wait_ms=20))).partitions == []


@on_a_loop
async def test_a_fetch_that_is_hurried_tells_no_error_that_it_was_waiting_out(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    waiting = call(fetch_handler_of(broker), broker, want(partition, 0, epoch=6), wait_ms=10_000)
    assert isinstance(waiting, DelayedFetchResponse)
    waiting.force_complete()
    assert heard(await waiting).partitions == []


@on_a_loop
async def test_a_session_that_ends_leaves_nothing_behind(broker: SmallBroker) -> None:
    (partition,) = replicated(broker)
    handler = fetch_handler_of(broker)
    for _ in range(10):  # a follower that lost its connections cannot name what it had
        heard(call(handler, broker, want(partition, 0)))
    assert len(partition.log_end_waiters.waiting) == 4
    assert len(partition.read_waiters.waiting) == 4
    assert len(handler.sessions) == 0


@on_a_loop
async def test_a_leader_that_has_just_begun_tells_clients_no_high_watermark_that_may_be_too_low(
    broker: SmallBroker,
) -> None:
    (partition,) = replicated(broker)
    for _ in range(3):
        partition.append_records(batch(b"v"), acks=1)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 2, 0)
    partition.update_registration(msgspec.structs.replace(partition.registration, leader_epoch=6, partition_epoch=2))
    assert (partition.log.high_watermark, partition.has_reached_epoch_start) == (2, False)
    handler = fetch_handler_of(broker)

    def consume(offset: int, wait_ms: int) -> Reply:
        return call(handler, broker, want(partition, offset, 6), (0, -1), wait_ms=wait_ms, replica=-1)

    below = only(heard(consume(1, 0)))
    assert (below.error, below.high_watermark, len(below.records) > 0) == (ErrorCode.none, -1, True)
    assert only(heard(consume(2, 0))).error is ErrorCode.offset_not_available
    elsewhere = FetchRequestPartition(partition.topic_id, partition.partition, offset=0, max_bytes=1)
    assert without_records(partition, elsewhere).high_watermark == -1
    waiting = consume(2, 10_000)
    partition.leader.record_fetch(FOLLOWER, EPOCH, 3, 0)
    assert without_records(partition, elsewhere).high_watermark == 3
    there = only(await heard_later(waiting))
    assert (there.error, there.high_watermark, len(there.records) > 0) == (ErrorCode.none, 3, True)
