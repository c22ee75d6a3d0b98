"""Produce: errors by partition, acks, old versions, and waiting for replication."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from ottla_broker.api.produce import Appends, produce
from ottla_broker.log.config import LogConfig
from ottla_broker.replication.pending_acks import CommitCallback
from ottla_broker.requests.context import CloseConnection
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import write_request
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.produce import read_produce_request
from ottla_broker.wire.records import iter_records
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import SmallBroker, batch, context
from tests.unit.api.calls import call_produce, decode_delayed_produce, decode_produce, produce_results
from tests.unit.api.requests import produce_request
from tests.unit.async_tests import async_test
from tests.unit.authorizers import DenyAll


def test_records_are_appended_to_every_partition_and_offsets_returned(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    broker.add_topic("b")
    request = produce_request({("a", 0): batch(b"1", b"2"), ("a", 1): batch(b"3"), ("b", 0): batch(b"4")})
    first = produce_results(decode_produce(call_produce(broker, request)))
    assert first == [("a", 0, ErrorCode.none, 0), ("a", 1, ErrorCode.none, 0), ("b", 0, ErrorCode.none, 0)]
    second = produce_results(decode_produce(call_produce(broker, request)))
    assert [offset for *_, offset in second] == [2, 1, 1]
    log = broker.partitions.leader("a", 0).log
    assert [record.value for _, record in iter_records(log.read(0, 1 << 20, up_to=4))] == [b"1", b"2", b"1", b"2"]


def test_errors_are_reported_by_partition(broker: SmallBroker) -> None:
    broker.add_topic("a", 2, LogConfig(max_message_bytes=100))
    corrupt = bytearray(batch(b"x"))
    corrupt[-1] ^= 1
    request = produce_request(
        {("a", 0): batch(b"1"), ("a", 1): batch(bytes(200)), ("a", 7): batch(b"1"), ("gone", 0): batch(b"1")}
    )
    assert produce_results(decode_produce(call_produce(broker, request))) == [
        ("a", 0, ErrorCode.none, 0),
        ("a", 1, ErrorCode.message_too_large, -1),
        ("a", 7, ErrorCode.unknown_topic_or_partition, -1),
        ("gone", 0, ErrorCode.unknown_topic_or_partition, -1),
    ]
    request = produce_request({("a", 0): bytes(corrupt), ("a", 1): None})
    codes = [code for _, _, code, _ in produce_results(decode_produce(call_produce(broker, request)))]
    assert codes == [ErrorCode.corrupt_message, ErrorCode.invalid_record]


def test_acks_0_has_no_response_and_closes_the_connection_on_an_error(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    assert call_produce(broker, produce_request({("a", 0): batch(b"1")}, acks=0)) is None
    assert partition.log.end == 1
    with pytest.raises(CloseConnection, match="gone-0"):
        call_produce(broker, produce_request({("gone", 0): batch(b"1")}, acks=0))


def test_acks_2_is_rejected(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    response = decode_produce(call_produce(broker, produce_request({("a", 0): batch(b"1")}, acks=2)))
    assert produce_results(response) == [("a", 0, ErrorCode.invalid_required_acks, -1)]
    assert partition.log.end == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_rule_16_requests_of_old_versions_are_parsed_and_rejected(broker: SmallBroker, version: int) -> None:
    broker.add_topic("a")
    frame = bytearray(b"\0\0" + version.to_bytes(2) + b"\0\0\0\x05\xff\xff" + b"\xff\xff\0\0\x03\xe8")
    frame += b"\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\0\0\0\0\0"
    assert read_produce_request(frame, read_request_header(frame)).topics[0][0] == "a"
    reply = produce(context(broker, version), frame, read_request_header(frame), 1 << 20)
    assert isinstance(reply, list)
    response = bytes(reply[0])
    # size, correlation id, one topic "a", one partition 0, and its error
    assert response[4:].startswith(
        b"\0\0\0\x05\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\0" + ErrorCode.unsupported_version.to_bytes(2)
    )


def test_rule_13_unknown_topic_id_is_rejected(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    request = produce_request({("a", 0): batch(b"1")})
    frame = write_request(ApiKey.PRODUCE, 13, 1, "me", request)[4:]  # a request without an id has the zero id
    response = decode_produce(produce(context(broker, 13), frame, read_request_header(frame), 1 << 20), 13)
    assert response.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_id
    assert partition.log.end == 0


@async_test
async def test_batch_that_a_follower_refuses_leaves_no_gap_when_it_leads(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    state = partition.registration
    first, second, third = (batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number) for number in range(3))

    def send(records: bytes) -> ErrorCode:
        return Appends(context(broker, 9), 1, None).append("a", 0, memoryview(records)).error

    assert send(first) is ErrorCode.none
    partition.update_registration(replace(state, leader=2, leader_epoch=state.leader_epoch + 1, partition_epoch=2))
    assert send(second) is ErrorCode.not_leader_or_follower
    partition.update_registration(replace(state, leader_epoch=state.leader_epoch + 2, partition_epoch=3))
    assert send(third) is ErrorCode.not_leader_or_follower
    assert [send(second), send(third)] == [ErrorCode.none, ErrorCode.none]


def test_clients_cannot_produce_to_internal_topics(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("__consumer_offsets")
    response = decode_produce(call_produce(broker, produce_request({("__consumer_offsets", 0): batch(b"1")})))
    assert produce_results(response) == [("__consumer_offsets", 0, ErrorCode.invalid_topic_exception, -1)]
    assert partition.log.end == 0


def test_produce_without_authorization_is_rejected(broker: SmallBroker) -> None:
    broker.add_topic("a")
    response = decode_produce(call_produce(broker, produce_request({("a", 0): batch(b"1")}), authorizer=DenyAll()))
    assert produce_results(response) == [("a", 0, ErrorCode.topic_authorization_failed, -1)]


class SlowPartition:
    """A partition whose appends are committed when the test calls their callbacks."""

    def __init__(self, broker: SmallBroker, topic: str) -> None:
        self.callbacks: list[CommitCallback] = []
        (partition,) = broker.add_topic(topic)
        partition.is_committed = lambda appended: False  # type: ignore[method-assign]
        partition.call_when_committed = self.when_committed  # type: ignore[method-assign]

    def when_committed(self, appended: Any, callback: CommitCallback, **options: Any) -> bool:
        self.callbacks.append(callback)
        return True


@async_test
async def test_response_waits_for_all_partitions(broker: SmallBroker) -> None:
    one, other = SlowPartition(broker, "a"), SlowPartition(broker, "b")
    reply = call_produce(broker, produce_request({("a", 0): batch(b"1"), ("b", 0): batch(b"2")}))
    assert isinstance(reply, asyncio.Future)
    one.callbacks[0](None)
    await asyncio.sleep(0)
    assert not reply.done()
    other.callbacks[0](KafkaError(ErrorCode.not_leader_or_follower))
    assert produce_results(await decode_delayed_produce(reply)) == [
        ("a", 0, ErrorCode.none, 0),
        ("b", 0, ErrorCode.not_leader_or_follower, -1),
    ]


@async_test
async def test_response_waits_for_the_timeout_at_most(broker: SmallBroker) -> None:
    SlowPartition(broker, "a")
    reply = call_produce(broker, produce_request({("a", 0): batch(b"1")}, timeout_ms=20))
    assert produce_results(await decode_delayed_produce(reply)) == [("a", 0, ErrorCode.request_timed_out, -1)]
