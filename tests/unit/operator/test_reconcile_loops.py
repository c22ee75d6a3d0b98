"""Reconcile loops, on virtual time."""

import asyncio
from itertools import pairwise

import pytest

from ottla_operator.reconcile.loops import LONGEST_RETRY_S, ReconcileLoops
from tests.unit.async_tests import virtual_time_test


class ExpectedError(Exception):
    pass


async def ignore(key: str, error: Exception) -> None:
    pass


@virtual_time_test
async def test_a_loop_reconciles_when_woken_and_after_the_requeue_delay_and_once_at_a_time() -> None:
    reconciles: list[float] = []
    running = 0

    async def reconcile(key: str) -> float:
        nonlocal running
        running += 1
        assert running == 1
        reconciles.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        running -= 1
        return 10

    loops = ReconcileLoops(reconcile, (ExpectedError,), ignore)
    loops.wake("a")
    assert not loops._loops, "not started yet"
    loops.start()
    for _ in range(5):
        loops.wake("a")
    await asyncio.sleep(0.5)
    loops.wake("a")  # while it reconciles: it reconciles again
    await asyncio.sleep(20)
    assert reconciles == pytest.approx([0, 1.05, 12.1])
    await loops.stop()


@virtual_time_test
async def test_an_error_is_reported_and_retried_with_growing_delays() -> None:
    reconciles: list[float] = []
    reported: list[str] = []

    async def reconcile(key: str) -> None:
        reconciles.append(asyncio.get_running_loop().time())
        raise ExpectedError(f"attempt {len(reconciles)}")

    async def report(key: str, error: Exception) -> None:
        reported.append(str(error))

    loops = ReconcileLoops(reconcile, (ExpectedError,), report)
    loops.start()
    loops.wake("a")
    await asyncio.sleep(200)
    waits = [after - before for before, after in pairwise(reconciles)]
    assert waits[:3] == pytest.approx([0.55, 1.05, 2.05]) and max(waits) == pytest.approx(LONGEST_RETRY_S + 0.05)
    assert reported[:2] == ["attempt 1", "attempt 2"]
    await loops.stop()


@virtual_time_test
async def test_a_bug_is_reported_too() -> None:
    reported: list[str] = []

    async def reconcile(key: str) -> None:
        raise KeyError("spec")

    async def report(key: str, error: Exception) -> None:
        reported.append(str(error))

    loops = ReconcileLoops(reconcile, (ExpectedError,), report)
    loops.start()
    loops.wake("a")
    await asyncio.sleep(0.1)
    assert reported == ["bug in the operator, see its log: KeyError: 'spec'"]
    await loops.stop()


@virtual_time_test
async def test_a_key_without_a_requeue_delay_is_not_reconciled_until_it_is_woken_again() -> None:
    reconciles = 0

    async def reconcile(key: str) -> float | None:
        nonlocal reconciles
        reconciles += 1
        return None

    loops = ReconcileLoops(reconcile, (ExpectedError,), ignore)
    loops.start()
    loops.wake("a")
    await asyncio.sleep(100)
    assert reconciles == 1 and not loops._loops
    loops.wake("a")
    await asyncio.sleep(1)
    assert reconciles == 2
    await loops.stop()


@virtual_time_test
async def test_a_bug_ends_no_loop_not_even_one_in_reporting() -> None:
    reconciles = 0

    async def reconcile(key: str) -> float | None:
        nonlocal reconciles
        reconciles += 1
        raise ExpectedError if reconciles % 2 else AssertionError

    async def report(key: str, error: Exception) -> None:
        raise AssertionError

    loops = ReconcileLoops(reconcile, (ExpectedError,), report)
    loops.start()
    loops.wake("a")
    await asyncio.sleep(10)
    assert reconciles > 3
    await loops.stop()
