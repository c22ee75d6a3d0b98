import asyncio
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from ottla_broker.replication.partition import Partition
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.records import iter_records
from tests.unit.api.brokers import SmallBroker, batch
from tests.unit.api.calls import answered, call_fetch, fetch_handler_of, waited
from tests.unit.api.requests import fetch_request
from tests.unit.api.test_produce import Nobody


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    made = SmallBroker(tmp_path)
    yield made
    made.close()


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 20))

    return run


def only(answer: Any) -> Any:
    """The one partition of an answer."""
    assert getattr(answer, "error_code", ErrorCode.none) is ErrorCode.none  # there is one from version 7 on
    ((partition,),) = [topic.partitions for topic in answer.responses]
    return partition


def values(partition: Any) -> list[bytes | None]:
    return [record.value for _, record in iter_records(partition.records or b"")]


def put(partition: Partition, *contents: bytes, **how: Any) -> None:
    partition.append_records(batch(*contents, **how), acks=-1, from_client=not how.get("control", False))


@on_a_loop
async def test_answers_what_is_there(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, b"1", b"2")
    put(partition, b"3")
    handler = fetch_handler_of(broker)
    for version in range(4, 13):
        found = only(answered(call_fetch(handler, broker, fetch_request({("a", 0): 0}), version), 1, version))
        assert values(found) == [b"1", b"2", b"3"]
        assert (found.high_watermark, found.last_stable_offset) == (3, 3)


@on_a_loop
async def test_rule_11_a_fetch_from_inside_a_batch_returns_the_whole_batch(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, b"1", b"2", b"3")
    put(partition, b"4")
    found = only(answered(call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 2})), 1, 12))
    assert values(found) == [b"1", b"2", b"3", b"4"]


@on_a_loop
async def test_rule_11_the_first_batch_is_returned_even_above_the_limits(broker: SmallBroker) -> None:
    first, second = broker.add_topic("a", 2)
    for partition in (first, second):
        put(partition, bytes(5000))
        put(partition, bytes(5000))
    handler = fetch_handler_of(broker)
    request = fetch_request({("a", 0): 0, ("a", 1): 0}, max_bytes=10, partition_bytes=10)
    for room in (1 << 30, 0):
        one, other = answered(call_fetch(handler, broker, request, room=room), 1, 12).responses[0].partitions
        assert values(one) == [bytes(5000)]  # the first batch of the answer, and only that
        assert not other.records


@on_a_loop
async def test_the_limit_of_an_answer_counts_over_partitions(broker: SmallBroker) -> None:
    partitions = broker.add_topic("a", 3)
    for partition in partitions:
        for _ in range(4):
            put(partition, bytes(1000))
    request = fetch_request({("a", index): 0 for index in range(3)}, max_bytes=6500)
    found = answered(call_fetch(fetch_handler_of(broker), broker, request), 1, 12).responses[0].partitions
    assert [len(values(partition)) for partition in found] == [4, 2, 0]


@on_a_loop
async def test_codes_of_partitions(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, b"1")
    handler = fetch_handler_of(broker)

    def code(where: dict[Any, int], **how: Any) -> Any:
        version = 13 if any(not isinstance(topic, str) for topic, _ in where) else 12
        return only(
            answered(call_fetch(handler, broker, fetch_request(where, wait_ms=1000, **how), version), 1, version)
        ).error_code

    assert code({("a", 0): 2}) is ErrorCode.offset_out_of_range
    assert code({("a", 0): -1}) is ErrorCode.offset_out_of_range
    assert code({("a", 9): 0}) is ErrorCode.unknown_topic_or_partition
    assert code({("b", 0): 0}) is ErrorCode.unknown_topic_or_partition
    assert code({("a", 0): 0}, epoch=7) is ErrorCode.unknown_leader_epoch
    # rule 13: another topic's id is not this topic, whatever its name was
    assert code({(broker.runtime.new_uuid(), 0): 0}) is ErrorCode.unknown_topic_id
    assert code({(partition.topic_id, 0): 0}) is ErrorCode.none


@on_a_loop
async def test_the_authorizer_is_asked(broker: SmallBroker) -> None:
    broker.add_topic("a")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}), authorizer=Nobody())
    assert only(answered(reply, 1, 12)).error_code is ErrorCode.topic_authorization_failed


@on_a_loop
async def test_an_append_wakes_a_fetch_that_waits(broker: SmallBroker) -> None:
    partition, other = broker.add_topic("a", 2)
    request = fetch_request({("a", 0): 0, ("a", 1): 0}, wait_ms=10_000)
    reply = call_fetch(fetch_handler_of(broker), broker, request)
    put(partition, b"1")
    one, two = (await waited(reply, 1, 12)).responses[0].partitions
    assert (values(one), values(two)) == ([b"1"], [])
    assert not partition.read_waiters.waiting
    assert not other.read_waiters.waiting


@on_a_loop
async def test_a_fetch_waits_for_min_bytes(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, bytes(300))
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=10_000, min_bytes=1500))
    assert isinstance(reply, Future)
    for _ in range(2):
        put(partition, bytes(300))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not reply.done()
    put(partition, bytes(1000))
    assert len(values(only(await waited(reply, 1, 12)))) == 4


@on_a_loop
async def test_a_fetch_waits_no_longer_than_it_was_asked_to(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, b"1")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=20, min_bytes=1500))
    assert values(only(await waited(reply, 1, 12))) == [b"1"]
    assert not partition.read_waiters.waiting


@on_a_loop
async def test_a_connection_that_goes_leaves_nothing_behind(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=10_000))
    assert isinstance(reply, Future)
    assert partition.read_waiters.waiting
    reply.cancel()
    await asyncio.sleep(0)
    assert not partition.read_waiters.waiting
    put(partition, b"1")
    await asyncio.sleep(0)


@on_a_loop
async def test_rule_7_read_committed_stops_at_open_transactions_and_names_the_aborted(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, b"plain")
    put(partition, b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    partition.append_records(
        encode_end_transaction_marker(False, 0, timestamp_ms=1_000, producer_id=7, producer_epoch=0),
        acks=-1,
        from_client=False,
    )
    put(partition, b"open", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    handler = fetch_handler_of(broker)
    committed = only(answered(call_fetch(handler, broker, fetch_request({("a", 0): 0}, isolation=1)), 1, 12))
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 3)
    assert [header.base_offset for header, _ in iter_records(committed.records)] == [0, 1, 2]
    assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions] == [(7, 1)]
    everything = only(answered(call_fetch(handler, broker, fetch_request({("a", 0): 0})), 1, 12))
    assert [header.base_offset for header, _ in iter_records(everything.records)] == [0, 1, 2, 3]
    assert everything.aborted_transactions is None


@on_a_loop
async def test_a_session_answers_only_news(broker: SmallBroker) -> None:
    first, second = broker.add_topic("a", 2)
    put(first, b"1")
    handler = fetch_handler_of(broker)

    def fetch(wanted: dict[Any, int], session: tuple[int, int], **how: Any) -> Any:
        return answered(call_fetch(handler, broker, fetch_request(wanted, session=session, **how)), 1, 12)

    full = fetch({("a", 0): 0, ("a", 1): 0}, (0, 0))
    session = full.session_id
    assert session > 0
    assert len(full.responses[0].partitions) == 2
    assert fetch({("a", 0): 1}, (session, 1)).responses == ()
    put(second, b"2")
    news = fetch({}, (session, 2))
    assert [(p.partition_index, values(p)) for p in news.responses[0].partitions] == [(1, [b"2"])]
    assert fetch({}, (session, 2)).error_code is ErrorCode.invalid_fetch_session_epoch
    assert fetch({}, (session + 1, 1)).error_code is ErrorCode.fetch_session_id_not_found
    assert fetch({}, (session, 3), forget=[("a", 1)]).responses == ()
    put(second, b"3")
    assert fetch({}, (session, 4)).responses == ()
    assert fetch({("a", 0): 0}, (session, -1)).session_id == 0
    assert fetch({}, (session, 5)).error_code is ErrorCode.fetch_session_id_not_found


@on_a_loop
async def test_a_fetch_does_not_wait_while_there_are_records_that_do_not_fit(broker: SmallBroker) -> None:
    """`min_bytes` at or above a limit: whole batches below it count as enough (Kafka answers at once, too)."""
    (partition,) = broker.add_topic("a")
    for _ in range(5):
        put(partition, bytes(300))
    handler = fetch_handler_of(broker)
    limits: list[dict[str, Any]] = [
        {"min_bytes": 1000, "partition_bytes": 1000},
        {"min_bytes": 5000, "max_bytes": 1000},
    ]
    for how in limits:
        found = only(answered(call_fetch(handler, broker, fetch_request({("a", 0): 0}, wait_ms=10_000, **how)), 1, 12))
        assert len(values(found)) == 2


@on_a_loop
async def test_a_fetch_does_not_wait_while_another_partitions_records_fill_the_limit(broker: SmallBroker) -> None:
    for partition in broker.add_topic("a", 2):
        put(partition, bytes(400))
    request = fetch_request({("a", 0): 0, ("a", 1): 0}, wait_ms=10_000, min_bytes=600, max_bytes=600)
    found = answered(call_fetch(fetch_handler_of(broker), broker, request), 1, 12).responses[0].partitions
    assert [len(values(partition)) for partition in found] == [1, 0]


@on_a_loop
async def test_min_bytes_counts_no_further_than_max_bytes(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, bytes(300))
    request = fetch_request({("a", 0): 0}, wait_ms=10_000, min_bytes=5000, max_bytes=100)
    found = only(answered(call_fetch(fetch_handler_of(broker), broker, request), 1, 12))
    assert len(values(found)) == 1


@on_a_loop
async def test_a_fetch_does_not_wait_at_the_end_of_a_segment(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, bytes(300))
    partition.log.roll()
    put(partition, bytes(300))
    partition.log.clear_tail_cache()
    request = fetch_request({("a", 0): 0}, wait_ms=10_000, min_bytes=500)
    assert values(only(answered(call_fetch(fetch_handler_of(broker), broker, request), 1, 12)))


@on_a_loop
async def test_a_waiting_fetch_is_answered_when_records_come_that_do_not_fit(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    put(partition, bytes(300))
    request = fetch_request({("a", 0): 0}, wait_ms=60_000, min_bytes=100_000, partition_bytes=600)
    reply = call_fetch(fetch_handler_of(broker), broker, request)
    assert isinstance(reply, Future)
    put(partition, bytes(300))
    assert len(values(only(await waited(reply, 1, 12)))) == 1


@on_a_loop
async def test_a_consumer_reads_from_a_follower_without_a_replica_selector(broker: SmallBroker) -> None:
    """From version 11 on, as in Kafka; older versions do not know that a follower may answer."""
    (partition,) = broker.add_topic("a")
    put(partition, b"1")
    partition.update_registration(
        msgspec.structs.replace(
            partition.registration, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1, partition_epoch=1
        )
    )
    handler = fetch_handler_of(broker)
    found = only(answered(call_fetch(handler, broker, fetch_request({("a", 0): 0}), 11), 1, 11))
    assert (found.error_code, values(found)) == (ErrorCode.none, [b"1"])
    refused = only(answered(call_fetch(handler, broker, fetch_request({("a", 0): 0}), 10), 1, 10))
    assert refused.error_code is ErrorCode.not_leader_or_follower
