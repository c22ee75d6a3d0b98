"""The cache of fetch responses: identical fetches share a response, and only they."""

import asyncio
import gc
import random
import weakref
from asyncio import Future

import pytest

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.requests.reply import Buffers
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import write_request
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import SmallBroker, append, context
from tests.unit.api.calls import PLENTY, call_fetch, fetch_handler_of
from tests.unit.api.requests import fetch_request
from tests.unit.async_tests import async_test


def fetch(handler: FetchHandler, broker: SmallBroker, correlation_id: int, offset: int, **options: int) -> bytes:
    """The frame of the response. `options`: of `fetch_request`, and `version`."""
    version = options.pop("version", 11)
    frame = write_request(ApiKey.FETCH, version, correlation_id, "me", fetch_request({("a", 0): offset}, **options))[4:]  # type: ignore[arg-type]
    reply = handler(context(broker, version), frame, read_request_header(frame), PLENTY)
    assert reply is not None and not isinstance(reply, Future)
    return b"".join(reply)


@async_test
async def test_waiting_fetches_share_a_response_with_their_own_correlation_ids(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    handler = fetch_handler_of(broker)
    waiting: list[Future[Buffers]] = []
    for correlation_id in range(5):
        frame = write_request(ApiKey.FETCH, 11, correlation_id, "me", fetch_request({("a", 0): 0}, wait_ms=5000))[4:]
        reply = handler(context(broker, 11), frame, read_request_header(frame), PLENTY)
        assert isinstance(reply, Future)
        waiting.append(reply)
    append(partition, bytes(9000))
    frames = [b"".join(await reply) for reply in waiting]
    assert [int.from_bytes(frame[4:8]) for frame in frames] == [0, 1, 2, 3, 4]
    assert len({frame[8:] for frame in frames}) == 1
    assert partition.traffic.bytes_out == 5 * partition.log.size


@pytest.mark.parametrize("seed", range(30))
@async_test
async def test_response_is_always_that_of_a_handler_without_cache(broker: SmallBroker, seed: int) -> None:
    rng = random.Random(seed)
    (partition,) = broker.add_topic("a")
    append(partition, b"0")
    handler = fetch_handler_of(broker)
    offset = 0
    for step in range(60):
        match rng.randrange(6):
            case 0:
                append(partition, bytes(rng.choice((10, 5000))))
            case 1:
                append(partition, b"x", producer_id=step, producer_epoch=0, base_sequence=0, transactional=True)
                partition.append_records(
                    encode_end_transaction_marker(
                        rng.random() < 0.5, 0, timestamp_ms=1_000, producer_id=step, producer_epoch=0
                    ),
                    acks=-1,
                    from_client=False,
                )
            case 2 if rng.random() < 0.3:
                partition.log.delete_records_before(rng.randint(partition.log.start, partition.log.high_watermark))
            case 3:
                offset = rng.randint(0, partition.log.end)
        options = {
            "isolation": rng.randrange(2),
            "partition_bytes": rng.choice((100, 1 << 20)),
            "max_bytes": rng.choice((6000, 50 << 20)),
            "version": rng.choice((11, 12)),
        }
        for _ in range(2):
            cached = fetch(handler, broker, step, offset, **options)
            assert cached == fetch(fetch_handler_of(broker), broker, step, offset, **options)


@async_test
async def test_completed_fetch_is_freed_without_the_garbage_collector(broker: SmallBroker) -> None:
    (partition,) = broker.add_topic("a")
    reply = call_fetch(fetch_handler_of(broker), broker, fetch_request({("a", 0): 0}, wait_ms=5000), 11)
    assert isinstance(reply, Future)
    gc.disable()
    try:
        append(partition, bytes(9000))
        await reply
        reference = weakref.ref(reply)
        del reply
        await asyncio.sleep(0)  # the loop drops the handle that completed it
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("seed", range(10))
@async_test
async def test_repeated_fetch_gets_the_response_of_a_new_connection(broker: SmallBroker, seed: int) -> None:
    rng = random.Random(seed)
    for partition in broker.add_topic("a", 2):
        for _ in range(20):
            append(partition, bytes(rng.randrange(1, 200)))
    handler, repeated = fetch_handler_of(broker), context(broker, 11)
    for number in range(60):
        offsets = {("a", rng.randrange(2) if rng.random() < 0.2 else 0): rng.randrange(22)}
        options = {"wait_ms": 0, "partition_bytes": rng.choice((100, 100, 1000))}
        frame = write_request(ApiKey.FETCH, 11, number, "me", fetch_request(offsets, **options))[4:]  # type: ignore[arg-type]
        replies = []
        for ctx in (repeated, context(broker, 11)):
            reply = handler(ctx, bytearray(frame), read_request_header(frame), PLENTY)
            assert reply is not None and not isinstance(reply, Future)
            replies.append(b"".join(reply))
        assert replies[0] == replies[1]
