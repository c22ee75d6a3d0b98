"""Producer ids: each given once, in blocks."""

import asyncio

from ottla_broker.coordination.producer_ids import ProducerIdAllocator
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.virtual_loop import run_in_virtual_time
from tests.unit.coordination.one_partition import (
    refused,
)


def test_producer_ids_never_repeat_and_blocks_are_asked_for_once() -> None:
    async def main() -> None:
        asked: list[range] = []

        async def allocate() -> range:
            await asyncio.sleep(1)
            asked.append(range(len(asked) * 10, len(asked) * 10 + 10))
            return asked[-1]

        ids = ProducerIdAllocator(allocate)
        given = await asyncio.gather(*(ids.generate_id() for _ in range(25)))
        assert sorted(given) == list(range(25))
        assert len(asked) == 3

    run_in_virtual_time(main())


def test_producer_ids_are_asked_for_again_after_a_failure() -> None:
    async def main() -> None:
        answers: list[range | KafkaError] = [KafkaError(ErrorCode.not_controller), range(1000, 2000)]

        async def allocate() -> range:
            answer = answers.pop(0)
            if isinstance(answer, KafkaError):
                raise answer
            return answer

        ids = ProducerIdAllocator(allocate)
        assert await refused(ids.generate_id()) is ErrorCode.not_controller
        assert await ids.generate_id() == 1000

    run_in_virtual_time(main())
