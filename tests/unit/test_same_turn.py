"""Coroutines that continue in the turn of the event loop in which what they wait for completes."""

import asyncio

import pytest

from ottla_broker.same_turn import SameTurnFuture, SameTurnTask
from tests.unit.async_tests import async_test


@async_test
async def test_a_coroutine_that_never_waits_is_done_at_once() -> None:
    async def add() -> int:
        return 1 + 1

    task = SameTurnTask(add())
    assert task.done() and task.result() == 2


@async_test
async def test_a_coroutine_continues_in_the_turn_that_completes_what_it_waits_for() -> None:
    first: SameTurnFuture[int] = SameTurnFuture()
    results: list[int] = []

    async def double() -> int:
        return 2 * await first

    task = SameTurnTask(double())
    task.on_complete = lambda done: results.append(done.result())
    assert not task.done()
    first.complete(4)
    assert results == [8]
    first.complete(5)
    assert results == [8], "only the first result counts"


@async_test
async def test_a_coroutine_may_wait_for_other_futures_and_for_sleep_0() -> None:
    async def wait() -> int:
        slow = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(slow.set_result, 3)
        found: int = await asyncio.shield(slow)
        await asyncio.sleep(0)
        completed: SameTurnFuture[int] = SameTurnFuture()
        completed.complete(4)
        return found + await completed

    assert await SameTurnTask(wait()) == 7


@async_test
async def test_errors_reach_the_coroutine_and_whoever_waits_for_it() -> None:
    first: SameTurnFuture[int] = SameTurnFuture()
    failures: list[BaseException | None] = []

    async def fail() -> int:
        try:
            return await first
        except KeyError as reason:
            raise ValueError("no such key") from reason

    task = SameTurnTask(fail())
    task.on_complete = lambda done: failures.append(done.exception())
    first.fail(KeyError())
    assert isinstance(failures[0], ValueError)
    with pytest.raises(ValueError, match="no such key"):
        await task


@async_test
async def test_cancelling_does_not_end_the_coroutine() -> None:
    first: SameTurnFuture[int] = SameTurnFuture()
    ended: list[int] = []

    async def work() -> None:
        ended.append(await first)

    task = SameTurnTask(work())
    task.cancel()
    first.complete(1)
    assert ended == [1] and task.cancelled()


@async_test
async def test_a_coroutine_whose_wait_is_cancelled_is_cancelled() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await first

    task = SameTurnTask(work())
    first.cancel()
    await asyncio.sleep(0)
    assert task.cancelled()


@async_test
async def test_those_who_wait_behind_a_shield_continue_in_the_same_turn() -> None:
    written: SameTurnFuture[int] = SameTurnFuture()
    results: list[tuple[str, int]] = []

    async def wait(name: str) -> None:
        results.append((name, await written.shield()))

    for name in ("a", "b"):
        SameTurnTask(wait(name))
    written.complete(3)
    assert results == [("a", 3), ("b", 3)]


@async_test
async def test_cancelling_one_who_waits_behind_a_shield_does_not_cancel_the_others() -> None:
    written: SameTurnFuture[int] = SameTurnFuture()
    cancelled, waiting = written.shield(), written.shield()
    cancelled.cancel()
    written.fail(KeyError("k"))
    assert isinstance(waiting.exception(), KeyError) and isinstance(written.exception(), KeyError)
