"""A coroutine that begins outside of a task and ends in one."""

import asyncio

import pytest

from ottla_broker.requests.started_coroutine import continue_coroutine
from tests.unit.async_tests import async_test


async def add(one: "asyncio.Future[int]", other: "asyncio.Future[int]") -> int:
    try:
        return await one + await other
    except ValueError:
        return -1


@async_test
async def test_the_rest_has_the_results_and_errors_that_it_waits_for() -> None:
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(4)]
    works = [add(*futures[:2]), add(*futures[2:])]
    tasks = [loop.create_task(continue_coroutine(work, work.send(None))) for work in works]
    futures[0].set_result(3)
    futures[2].set_exception(ValueError())
    await asyncio.sleep(0)
    futures[1].set_result(4)
    assert await asyncio.gather(*tasks) == [7, -1]


@async_test
async def test_the_rest_can_be_cancelled() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    work = add(first, second)
    task = loop.create_task(continue_coroutine(work, work.send(None)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert first.cancelled()
