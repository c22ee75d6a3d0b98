"""What one consumer was told is told again to who asks the same, and to nobody else."""

import asyncio
import gc
import random
import weakref
from asyncio import Future

import pytest

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.requests.context import Buffers
from ottla_broker.wire.codec import read_request_header, write_request
from ottla_broker.wire.control_records import encode_end_transaction_marker
from tests.unit.api.brokers import SmallBroker, context
from tests.unit.api.calls import PLENTY, call_fetch, fetch_handler_of
from tests.unit.api.requests import fetch_request
from tests.unit.api.test_fetch import broker, on_a_loop, put

__all__ = ["broker"]


def told(handler: FetchHandler, broker: SmallBroker, correlation_id: int, offset: int, **how: int) -> bytes:
    version = how.pop("version", 11)
    frame = write_request(1, version, correlation_id, "me", fetch_request({("a", 0): offset}, **how))[4:]  # type: ignore[arg-type]
    reply = handler(context(broker, version), frame, read_request_header(frame), PLENTY)
    assert reply is not None and not isinstance(reply, Future)
    return b"".join(reply)


@on_a_loop
async def test_all_who_wait_are_told_the_same_under_their_own_numbers(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    handler = fetch_handler_of(broker)
    waiting: list[Future[Buffers]] = []
    for correlation_id in range(5):
        frame = write_request(1, 11, correlation_id, "me", fetch_request({("a", 0): 0}, wait_ms=5000))[4:]
        reply = handler(context(broker, 11), frame, read_request_header(frame), PLENTY)
        assert isinstance(reply, Future)
        waiting.append(reply)
    put(partition, bytes(9000))
    answers = [b"".join(await reply) for reply in waiting]
    assert [int.from_bytes(answer[4:8]) for answer in answers] == [0, 1, 2, 3, 4]
    assert len({answer[8:] for answer in answers}) == 1
    assert partition.traffic.bytes_out == 5 * partition.log.size


@pytest.mark.parametrize("seed", range(30))
@on_a_loop
async def test_an_answer_is_always_what_somebody_who_remembers_nothing_would_say(
    broker: SmallBroker, seed: int
) -> None:
    chance = random.Random(seed)
    (partition,) = broker.add_topic("a")
    put(partition, b"0")
    handler = fetch_handler_of(broker)
    offset = 0
    for step in range(60):
        match chance.randrange(6):
            case 0:
                put(partition, bytes(chance.choice((10, 5000))))
            case 1:
                put(partition, b"x", producer_id=step, producer_epoch=0, base_sequence=0, transactional=True)
                partition.append_records(
                    encode_end_transaction_marker(
                        chance.random() < 0.5, 0, timestamp_ms=1_000, producer_id=step, producer_epoch=0
                    ),
                    acks=-1,
                    from_client=False,
                )
            case 2 if chance.random() < 0.3:
                partition.log.delete_records_before(chance.randint(partition.log.start, partition.log.high_watermark))
            case 3:
                offset = chance.randint(0, partition.log.end)
        how = {
            "isolation": chance.randrange(2),
            "partition_bytes": chance.choice((100, 1 << 20)),
            "max_bytes": chance.choice((6000, 50 << 20)),
            "version": chance.choice((11, 12)),
        }
        for _ in range(2):
            assert told(handler, broker, step, offset, **how) == told(
                fetch_handler_of(broker), broker, step, offset, **how
            )


@on_a_loop
async def test_a_fetch_that_waited_leaves_nothing_for_the_garbage_collector(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=5000), 11)
    assert isinstance(reply, Future)
    gc.disable()
    try:
        put(partition, bytes(9000))
        await reply
        gone = weakref.ref(reply)
        del reply
        await asyncio.sleep(0)  # the turn of the loop that gave it has ended
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(10))
@on_a_loop
async def test_a_repeated_fetch_of_a_connection_gets_what_a_new_connection_gets(broker: SmallBroker, seed: int) -> None:
    chance = random.Random(seed)
    for partition in broker.add_topic("a", 2):
        for _ in range(20):
            put(partition, bytes(chance.randrange(1, 200)))
    handler, repeated = fetch_handler_of(broker), context(broker, 11)
    for number in range(60):
        wanted = {("a", chance.randrange(2) if chance.random() < 0.2 else 0): chance.randrange(22)}
        how = {"wait_ms": 0, "partition_bytes": chance.choice((100, 100, 1000))}
        frame = write_request(1, 11, number, "me", fetch_request(wanted, **how))[4:]  # type: ignore[arg-type]
        replies = []
        for ctx in (repeated, context(broker, 11)):
            reply = handler(ctx, bytearray(frame), read_request_header(frame), PLENTY)
            assert reply is not None and not isinstance(reply, Future)
            replies.append(b"".join(reply))
        assert replies[0] == replies[1]
