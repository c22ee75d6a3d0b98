"""Small Produce requests that are appended together: their order, and what becomes of those that
cannot be joined.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kio.schema.errors import ErrorCode

from ottla_broker.replication.partition import Partition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, write_request
from tests.unit.api.brokers import ME, RawConnection, SmallBroker, batch, create_server, start_listening
from tests.unit.api.requests import fetch_request, produce_request
from tests.unit.async_tests import wait_until
from tests.unit.authorizers import DenyAll
from tests.unit.server.connections import broker_test
from tests.unit.server.turn_producer import VERSION, Producer

CORRUPT = bytearray(batch(b"x"))
CORRUPT[-1] ^= 1


@contextmanager
def count_joined() -> Iterator[list[int]]:
    """The numbers of batches in the joined appends."""
    counts: list[int] = []
    append = Partition.append_small_batches

    def append_and_count(partition: Partition, batches: Sequence[bytearray]) -> Sequence[int]:
        offsets = append(partition, batches)
        counts.append(len(offsets))
        return offsets

    with patch.object(Partition, "append_small_batches", append_and_count):
        yield counts


@broker_test
async def test_requests_of_one_turn_are_one_append_for_each_partition(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    await producer.produce((1, batch(b"first")))
    with count_joined() as joined:
        producer.send(*[(number % 2, batch(b"%d" % number)) for number in range(6)])
        assert await producer.receive_offsets(6) == [(number, ErrorCode.none, number // 2 + 1) for number in range(6)]
    assert joined == [3, 3]
    assert server.dispatcher.request_counts[ApiKey.PRODUCE] == 8
    await server.close()


@broker_test
async def test_invalid_request_is_rejected_in_its_place(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    with count_joined() as joined:
        producer.send((0, batch(b"1")), (0, bytes(CORRUPT)), (0, batch(b"2")), (5, batch(b"3")), (0, batch(b"4")))
        assert await producer.receive_offsets(5) == [
            (0, ErrorCode.none, 1),
            (1, ErrorCode.corrupt_message, -1),
            (2, ErrorCode.none, 2),
            (3, ErrorCode.unknown_topic_or_partition, -1),
            (4, ErrorCode.none, 3),
        ]
    assert joined == [1]
    assert partition.log.high_watermark == 4
    await server.close()


@broker_test
async def test_every_request_of_a_turn_gets_the_error_of_its_failed_write(broker: SmallBroker) -> None:
    broker.add_topic("a", 2)
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))

    with patch("os.pwritev", side_effect=OSError(errno.EIO, os.strerror(errno.EIO))):
        failed = await producer.produce(*[(0, batch(b"lost"))] * 3, (1, batch(b"lost")))
    assert failed == [(number, ErrorCode.kafka_storage_error) for number in range(4)]
    await server.close()


@broker_test
async def test_fetch_behind_produce_requests_of_its_connection_returns_their_records(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    fetch = write_request(ApiKey.FETCH, 12, 9, "me", fetch_request({("a", 0): 1}))
    producer.send((0, batch(b"1")), (0, batch(b"2")), more=bytes(fetch))
    assert await producer.receive(2) == [(0, ErrorCode.none), (1, ErrorCode.none)]
    response: Any = read_response(await producer.connection.receive(), ApiKey.FETCH, 12)
    (partition,) = response.responses[0].partitions
    assert partition.high_watermark == 3
    assert partition.records == b"".join(bytes(one.log.read(1, 1 << 20, up_to=3)) for one in broker.partitions)
    await server.close()


@broker_test
async def test_joined_requests_wait_for_the_whole_isr(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a", replicas=(ME, 2))
    server = create_server(broker)
    producer = Producer(await RawConnection.open(await start_listening(server)))
    assert await producer.produce((0, batch(b"first")), acks=1) == [(0, ErrorCode.none)]
    producer.send((0, batch(b"0")), acks=-1)  # has another template, so it is served alone
    await wait_until(lambda: partition.log.end == 2)
    with count_joined() as joined:
        producer.send((0, batch(b"1")), (0, batch(b"2")), acks=-1)
        await wait_until(lambda: partition.log.end == 4)
    assert joined == [2]
    partition.leader.record_fetch(2, -1, 3, 0)
    assert await producer.receive_offsets(2) == [(0, ErrorCode.none, 1), (0, ErrorCode.none, 2)]
    partition.leader.record_fetch(2, -1, 4, 0)
    assert await producer.receive_offsets(1) == [(1, ErrorCode.none, 3)]
    await server.close()


@broker_test
async def test_only_requests_with_the_right_to_write_are_appended(broker: SmallBroker) -> None:
    broker.add_topic("a")
    authorizer = DenyAll()
    authorizer.denies = False
    broker.authorizer = authorizer
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    with count_joined() as joined:
        assert await producer.produce((0, batch(b"1")), (0, batch(b"2"))) == [(0, ErrorCode.none), (1, ErrorCode.none)]
        authorizer.denies = True
        denied = await producer.produce((0, batch(b"3")), (0, batch(b"4")))
    assert denied == [(number, ErrorCode.topic_authorization_failed) for number in range(2)]
    assert sum(joined) == 2
    await server.close()


@broker_test
async def test_records_of_a_connection_that_closes_are_appended(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    server = create_server(broker)
    port = await start_listening(server)
    producer = await Producer.open(port)
    producer.send(*[(0, batch(b"%d" % number)) for number in range(4)])
    producer.connection.writer.close()
    await wait_until(lambda: partition.log.end == 5 and not server.connections)
    await server.close()


@broker_test
async def test_requests_of_the_turn_are_answered_before_the_connection_finishes(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    (connection,) = server.connections
    requests = b"".join(
        write_request(0, VERSION, number, "me", produce_request({("a", 0): batch(b"%d" % number)}))
        for number in range(2)
    )
    connection.get_buffer(-1)[: len(requests)] = requests
    connection.buffer_updated(len(requests))
    assert partition.log.end == 1 and not connection.is_idle
    connection.finish()
    assert partition.log.end == 3
    assert await producer.receive_offsets(2) == [(0, ErrorCode.none, 1), (1, ErrorCode.none, 2)]
    assert await producer.connection.is_closed_by_peer()
    await server.close()


@broker_test
async def test_memory_of_a_turn_is_bounded(broker: SmallBroker) -> None:
    broker.add_topic("a")
    server = create_server(broker)
    producer = await Producer.open(await start_listening(server))
    server._services.produce_turn.max_bytes = 200
    with count_joined() as joined:
        answers = await producer.produce(*[(0, batch(b"1"))] * 6)
    assert answers == [(number, ErrorCode.none) for number in range(6)]
    assert joined == [2, 2, 2]  # each is larger than 100 bytes
    await server.close()
