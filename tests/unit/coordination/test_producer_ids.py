"""Allocation of producer ids in blocks."""

import asyncio

from ottla_broker.coordination.producer_ids import ProducerIdAllocator
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import virtual_time_test
from tests.unit.kafka_errors import error_of


@virtual_time_test
async def test_producer_ids_are_unique_and_each_block_is_requested_once() -> None:
    blocks: list[range] = []

    async def allocate() -> range:
        await asyncio.sleep(1)
        blocks.append(range(len(blocks) * 10, len(blocks) * 10 + 10))
        return blocks[-1]

    ids = ProducerIdAllocator(allocate)
    generated = await asyncio.gather(*(ids.generate_id() for _ in range(25)))
    assert sorted(generated) == list(range(25))
    assert len(blocks) == 3


@virtual_time_test
async def test_block_is_requested_again_after_a_failure() -> None:
    results: list[range | KafkaError] = [KafkaError(ErrorCode.not_controller), range(1000, 2000)]

    async def allocate() -> range:
        result = results.pop(0)
        if isinstance(result, KafkaError):
            raise result
        return result

    ids = ProducerIdAllocator(allocate)
    assert await error_of(ids.generate_id()) is ErrorCode.not_controller
    assert await ids.generate_id() == 1000
