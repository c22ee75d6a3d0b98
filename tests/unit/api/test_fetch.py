"""Fetch as consumers send it: limits, waiting, sessions and read_committed."""

import asyncio
from asyncio import Future
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.records import iter_records
from tests.unit.api.brokers import SmallBroker, append
from tests.unit.api.calls import call_fetch, decode_delayed_fetch, decode_fetch, fetch_handler_of
from tests.unit.api.requests import fetch_request
from tests.unit.async_tests import async_test, run_event_loop
from tests.unit.authorizers import DenyAll


def only_partition(response: Any) -> Any:
    """The only partition of a response; the response has no error of its own."""
    assert getattr(response, "error_code", ErrorCode.none) is ErrorCode.none  # a field from version 7 on
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


def record_values(partition: Any) -> list[bytes | None]:
    return [record.value for _, record in iter_records(partition.records or b"")]


@async_test
async def test_fetch_returns_existing_records_in_every_version_with_topic_names(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, b"1", b"2")
    append(partition, b"3")
    handler = fetch_handler_of(broker)
    for version in range(4, 13):
        fetched = only_partition(
            decode_fetch(call_fetch(handler, broker, fetch_request({("a", 0): 0}), version), version)
        )
        assert record_values(fetched) == [b"1", b"2", b"3"]
        assert (fetched.high_watermark, fetched.last_stable_offset) == (3, 3)


@async_test
async def test_rule_11_a_fetch_from_inside_a_batch_returns_the_whole_batch(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, b"1", b"2", b"3")
    append(partition, b"4")
    fetched = only_partition(decode_fetch(call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 2}))))
    assert record_values(fetched) == [b"1", b"2", b"3", b"4"]


@async_test
async def test_rule_11_the_first_batch_is_returned_even_above_the_limits(broker: SmallBroker) -> None:
    first, second = broker.add_topic("a", 2)
    for partition in (first, second):
        append(partition, bytes(5000))
        append(partition, bytes(5000))
    handler = fetch_handler_of(broker)
    request = fetch_request({("a", 0): 0, ("a", 1): 0}, max_bytes=10, partition_bytes=10)
    for max_response_bytes in (1 << 30, 0):
        one, other = (
            decode_fetch(call_fetch(handler, broker, request, max_response_bytes=max_response_bytes))
            .responses[0]
            .partitions
        )
        assert record_values(one) == [bytes(5000)]  # only the first batch of the response
        assert not other.records


@async_test
async def test_max_bytes_bounds_all_partitions_of_a_response_together(broker: SmallBroker) -> None:
    partitions = broker.add_topic("a", 3)
    for partition in partitions:
        for _ in range(4):
            append(partition, bytes(1000))
    request = fetch_request({("a", index): 0 for index in range(3)}, max_bytes=6500)
    fetched = decode_fetch(call_fetch(fetch_handler_of(broker), broker, request)).responses[0].partitions
    assert [len(record_values(partition)) for partition in fetched] == [4, 2, 0]


@async_test
async def test_errors_are_reported_by_partition(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, b"1")
    handler = fetch_handler_of(broker)

    def code(offsets: dict[Any, int], **options: Any) -> Any:
        version = 13 if any(not isinstance(topic, str) for topic, _ in offsets) else 12
        return only_partition(
            decode_fetch(call_fetch(handler, broker, fetch_request(offsets, wait_ms=1000, **options), version), version)
        ).error_code

    assert code({("a", 0): 2}) is ErrorCode.offset_out_of_range
    assert code({("a", 0): -1}) is ErrorCode.offset_out_of_range
    assert code({("a", 9): 0}) is ErrorCode.unknown_topic_or_partition
    assert code({("b", 0): 0}) is ErrorCode.unknown_topic_or_partition
    assert code({("a", 0): 0}, epoch=7) is ErrorCode.unknown_leader_epoch
    # rule 13: another topic id is another topic, even if the name is the same
    assert code({(broker.runtime.new_uuid(), 0): 0}) is ErrorCode.unknown_topic_id
    assert code({(partition.topic_id, 0): 0}) is ErrorCode.none


@async_test
async def test_fetch_without_authorization_is_rejected(broker: SmallBroker) -> None:
    broker.add_topic("a")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}), authorizer=DenyAll())
    assert only_partition(decode_fetch(reply)).error_code is ErrorCode.topic_authorization_failed


@async_test
async def test_append_completes_a_waiting_fetch(broker: SmallBroker) -> None:
    partition, other = broker.add_topic("a", 2)
    request = fetch_request({("a", 0): 0, ("a", 1): 0}, wait_ms=10_000)
    reply = call_fetch(fetch_handler_of(broker), broker, request)
    append(partition, b"1")
    one, two = (await decode_delayed_fetch(reply)).responses[0].partitions
    assert (record_values(one), record_values(two)) == ([b"1"], [])
    assert not partition.read_waiters.waiting
    assert not other.read_waiters.waiting


@async_test
async def test_fetch_waits_for_min_bytes(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(300))
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=10_000, min_bytes=1500))
    assert isinstance(reply, Future)
    for _ in range(2):
        append(partition, bytes(300))
        await run_event_loop()
        assert not reply.done()
    append(partition, bytes(1000))
    assert len(record_values(only_partition(await decode_delayed_fetch(reply)))) == 4


@async_test
async def test_fetch_waits_for_max_wait_at_most(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, b"1")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=20, min_bytes=1500))
    assert record_values(only_partition(await decode_delayed_fetch(reply))) == [b"1"]
    assert not partition.read_waiters.waiting


@async_test
async def test_cancelled_fetch_leaves_no_waiter(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=10_000))
    assert isinstance(reply, Future)
    assert partition.read_waiters.waiting
    reply.cancel()
    await asyncio.sleep(0)
    assert not partition.read_waiters.waiting
    append(partition, b"1")
    await asyncio.sleep(0)


@async_test
async def test_rule_7_read_committed_ends_at_open_transactions_and_lists_aborted_ones(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, b"plain")
    append(partition, b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    partition.append_records(
        encode_end_transaction_marker(False, 0, timestamp_ms=1_000, producer_id=7, producer_epoch=0),
        acks=-1,
        from_client=False,
    )
    append(partition, b"open", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    handler = fetch_handler_of(broker)
    committed = only_partition(decode_fetch(call_fetch(handler, broker, fetch_request({("a", 0): 0}, isolation=1))))
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 3)
    assert [header.base_offset for header, _ in iter_records(committed.records)] == [0, 1, 2]
    assert [(it.producer_id, it.first_offset) for it in committed.aborted_transactions] == [(7, 1)]
    uncommitted = only_partition(decode_fetch(call_fetch(handler, broker, fetch_request({("a", 0): 0}))))
    assert [header.base_offset for header, _ in iter_records(uncommitted.records)] == [0, 1, 2, 3]
    assert uncommitted.aborted_transactions is None


@async_test
async def test_session_returns_only_changed_partitions(broker: SmallBroker) -> None:
    first, second = broker.add_topic("a", 2)
    append(first, b"1")
    handler = fetch_handler_of(broker)

    def fetch(offsets: dict[Any, int], session: tuple[int, int], **options: Any) -> Any:
        return decode_fetch(call_fetch(handler, broker, fetch_request(offsets, session=session, **options)))

    full = fetch({("a", 0): 0, ("a", 1): 0}, (0, 0))
    session = full.session_id
    assert session > 0
    assert len(full.responses[0].partitions) == 2
    assert fetch({("a", 0): 1}, (session, 1)).responses == ()
    append(second, b"2")
    changed = fetch({}, (session, 2))
    assert [(p.partition_index, record_values(p)) for p in changed.responses[0].partitions] == [(1, [b"2"])]
    assert fetch({}, (session, 2)).error_code is ErrorCode.invalid_fetch_session_epoch
    assert fetch({}, (session + 1, 1)).error_code is ErrorCode.fetch_session_id_not_found
    assert fetch({}, (session, 3), forget=[("a", 1)]).responses == ()
    append(second, b"3")
    assert fetch({}, (session, 4)).responses == ()
    assert fetch({("a", 0): 0}, (session, -1)).session_id == 0
    assert fetch({}, (session, 5)).error_code is ErrorCode.fetch_session_id_not_found


@async_test
async def test_fetch_does_not_wait_if_the_next_batch_exceeds_a_limit(broker: SmallBroker) -> None:
    """`min_bytes` is at or above a limit: the batches within the limit are enough, as in Kafka."""
    (partition,) = broker.add_topic("a")
    for _ in range(5):
        append(partition, bytes(300))
    handler = fetch_handler_of(broker)
    limits: list[dict[str, Any]] = [
        {"min_bytes": 1000, "partition_bytes": 1000},
        {"min_bytes": 5000, "max_bytes": 1000},
    ]
    for options in limits:
        fetched = only_partition(
            decode_fetch(call_fetch(handler, broker, fetch_request({("a", 0): 0}, wait_ms=10_000, **options)))
        )
        assert len(record_values(fetched)) == 2


@async_test
async def test_fetch_does_not_wait_while_records_of_another_partition_fill_the_limit(broker: SmallBroker) -> None:
    for partition in broker.add_topic("a", 2):
        append(partition, bytes(400))
    request = fetch_request({("a", 0): 0, ("a", 1): 0}, wait_ms=10_000, min_bytes=600, max_bytes=600)
    fetched = decode_fetch(call_fetch(fetch_handler_of(broker), broker, request)).responses[0].partitions
    assert [len(record_values(partition)) for partition in fetched] == [1, 0]


@async_test
async def test_min_bytes_counts_no_further_than_max_bytes(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(300))
    request = fetch_request({("a", 0): 0}, wait_ms=10_000, min_bytes=5000, max_bytes=100)
    fetched = only_partition(decode_fetch(call_fetch(fetch_handler_of(broker), broker, request)))
    assert len(record_values(fetched)) == 1


@async_test
async def test_fetch_does_not_wait_at_the_end_of_a_segment(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(300))
    partition.log.roll()
    append(partition, bytes(300))
    partition.log.clear_tail_cache()
    request = fetch_request({("a", 0): 0}, wait_ms=10_000, min_bytes=500)
    assert record_values(only_partition(decode_fetch(call_fetch(fetch_handler_of(broker), broker, request))))


@async_test
async def test_append_beyond_a_limit_completes_a_waiting_fetch(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    append(partition, bytes(300))
    request = fetch_request({("a", 0): 0}, wait_ms=60_000, min_bytes=100_000, partition_bytes=600)
    reply = call_fetch(fetch_handler_of(broker), broker, request)
    assert isinstance(reply, Future)
    append(partition, bytes(300))
    assert len(record_values(only_partition(await decode_delayed_fetch(reply)))) == 1


@async_test
async def test_consumer_may_read_from_a_follower_from_version_11_on(broker: SmallBroker) -> None:
    """As in Kafka (KIP-392). Older versions have no field for a preferred read replica."""
    (partition,) = broker.add_topic("a")
    append(partition, b"1")
    partition.update_registration(
        msgspec.structs.replace(
            partition.registration, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1, partition_epoch=1
        )
    )
    handler = fetch_handler_of(broker)
    fetched = only_partition(decode_fetch(call_fetch(handler, broker, fetch_request({("a", 0): 0}), 11), 11))
    assert (fetched.error_code, record_values(fetched)) == (ErrorCode.none, [b"1"])
    rejected = only_partition(decode_fetch(call_fetch(handler, broker, fetch_request({("a", 0): 0}), 10), 10))
    assert rejected.error_code is ErrorCode.not_leader_or_follower
