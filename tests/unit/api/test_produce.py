import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from ottla_broker.api.produce import produce
from ottla_broker.log.config import LogConfig
from ottla_broker.replication.pending_acks import CommitCallback
from ottla_broker.requests.context import CloseConnection
from ottla_broker.security.authorizer import AllowAll, Operation, Resource
from ottla_broker.security.principal import Principal
from ottla_broker.wire.codec import read_request_header, write_request
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.produce import read_produce_request
from ottla_broker.wire.records import iter_records
from tests.unit.api.brokers import SmallBroker, batch, context
from tests.unit.api.calls import answered, call_produce, waited
from tests.unit.api.requests import produce_request


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    made = SmallBroker(tmp_path)
    yield made
    made.close()


def results(answer: Any) -> list[tuple[str, int, ErrorCode, int]]:
    return [(t.name, p.index, p.error_code, p.base_offset) for t in answer.responses for p in t.partition_responses]


def test_appends_to_every_partition_and_tells_the_offsets(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    broker.add_topic("b")
    request = produce_request({("a", 0): batch(b"1", b"2"), ("a", 1): batch(b"3"), ("b", 0): batch(b"4")})
    once = results(answered(call_produce(broker, request), 0, 9))
    assert once == [("a", 0, ErrorCode.none, 0), ("a", 1, ErrorCode.none, 0), ("b", 0, ErrorCode.none, 0)]
    again = results(answered(call_produce(broker, request), 0, 9))
    assert [offset for *_, offset in again] == [2, 1, 1]
    log = broker.partitions.leader("a", 0).log
    assert [record.value for _, record in iter_records(log.read(0, 1 << 20, up_to=4))] == [b"1", b"2", b"1", b"2"]


def test_each_partition_is_refused_for_its_own_reason(broker: SmallBroker) -> None:
    broker.add_topic("a", 2, LogConfig(max_message_bytes=100))
    bent = bytearray(batch(b"x"))
    bent[-1] ^= 1
    request = produce_request(
        {("a", 0): batch(b"1"), ("a", 1): batch(bytes(200)), ("a", 7): batch(b"1"), ("gone", 0): batch(b"1")}
    )
    assert results(answered(call_produce(broker, request), 0, 9)) == [
        ("a", 0, ErrorCode.none, 0),
        ("a", 1, ErrorCode.message_too_large, -1),
        ("a", 7, ErrorCode.unknown_topic_or_partition, -1),
        ("gone", 0, ErrorCode.unknown_topic_or_partition, -1),
    ]
    request = produce_request({("a", 0): bytes(bent), ("a", 1): None})
    codes = [code for _, _, code, _ in results(answered(call_produce(broker, request), 0, 9))]
    assert codes == [ErrorCode.corrupt_message, ErrorCode.invalid_record]


def test_acks_0_answers_nothing_and_hangs_up_on_an_error(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    assert call_produce(broker, produce_request({("a", 0): batch(b"1")}, acks=0)) is None
    assert partition.log.end == 1
    with pytest.raises(CloseConnection, match="gone-0"):
        call_produce(broker, produce_request({("gone", 0): batch(b"1")}, acks=0))


def test_acks_of_2_are_refused(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    answer = answered(call_produce(broker, produce_request({("a", 0): batch(b"1")}, acks=2)), 0, 9)
    assert results(answer) == [("a", 0, ErrorCode.invalid_required_acks, -1)]
    assert partition.log.end == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_rule_16_old_versions_are_advertised_and_refused(broker: SmallBroker, version: int) -> None:
    broker.add_topic("a")
    frame = bytearray(b"\0\0" + version.to_bytes(2) + b"\0\0\0\x05\xff\xff" + b"\xff\xff\0\0\x03\xe8")
    frame += b"\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\0\0\0\0\0"
    assert read_produce_request(frame, read_request_header(frame)).topics[0][0] == "a"
    reply = produce(context(broker, version), frame, read_request_header(frame), 1 << 20)
    assert isinstance(reply, list)
    answer = bytes(reply[0])
    # size, correlation id, one topic "a", one partition 0, and its error
    assert answer[4:].startswith(
        b"\0\0\0\x05\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\0" + ErrorCode.unsupported_version.to_bytes(2)
    )


def test_rule_13_a_topic_named_by_an_id_that_is_gone_takes_nothing(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    request = produce_request({("a", 0): batch(b"1")})
    frame = write_request(0, 13, 1, "me", request)[4:]  # the id of a request without one is the zero id
    answer = answered(produce(context(broker, 13), frame, read_request_header(frame), 1 << 20), 0, 13)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_id
    assert partition.log.end == 0


def test_internal_topics_are_not_written_by_clients(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("__consumer_offsets")
    answer = answered(call_produce(broker, produce_request({("__consumer_offsets", 0): batch(b"1")})), 0, 9)
    assert results(answer) == [("__consumer_offsets", 0, ErrorCode.invalid_topic_exception, -1)]
    assert partition.log.end == 0


class Nobody(AllowAll):
    allows_everything = False

    def allows(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        return False


def test_the_authorizer_is_asked(broker: SmallBroker) -> None:
    broker.add_topic("a")
    answer = answered(call_produce(broker, produce_request({("a", 0): batch(b"1")}), authorizer=Nobody()), 0, 9)
    assert results(answer) == [("a", 0, ErrorCode.topic_authorization_failed, -1)]


class Slow:
    """A partition whose appends wait for others."""

    def __init__(self, broker: SmallBroker, topic: str) -> None:
        self.waits: list[CommitCallback] = []
        (partition,) = broker.add_topic(topic)
        partition.is_committed = lambda appended: False  # type: ignore[method-assign]
        partition.call_when_committed = self.when_committed  # type: ignore[method-assign]

    def when_committed(self, appended: Any, callback: CommitCallback, **how: Any) -> bool:
        self.waits.append(callback)
        return True


def test_an_answer_waits_for_all_partitions(broker: SmallBroker) -> None:
    async def test() -> None:
        one, other = Slow(broker, "a"), Slow(broker, "b")
        reply = call_produce(broker, produce_request({("a", 0): batch(b"1"), ("b", 0): batch(b"2")}))
        assert isinstance(reply, asyncio.Future)
        one.waits[0](None)
        await asyncio.sleep(0)
        assert not reply.done()
        other.waits[0](KafkaError(ErrorCode.not_leader_or_follower))
        assert results(await waited(reply, 0, 9)) == [
            ("a", 0, ErrorCode.none, 0),
            ("b", 0, ErrorCode.not_leader_or_follower, -1),
        ]

    asyncio.run(test())


def test_an_answer_waits_no_longer_than_it_was_asked_to(broker: SmallBroker) -> None:
    async def test() -> None:
        Slow(broker, "a")
        reply = call_produce(broker, produce_request({("a", 0): batch(b"1")}, timeout_ms=20))
        assert results(await waited(reply, 0, 9)) == [("a", 0, ErrorCode.request_timed_out, -1)]

    asyncio.run(test())
