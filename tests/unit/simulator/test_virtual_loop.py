"""The virtual event loop: time jumps, order repeats, deadlocks are detected."""

import asyncio

import pytest

from tests.sim.virtual_loop import Deadlock, run_in_virtual_time


def test_hours_pass_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(36_000)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main(), start_s=5.0) == 36_005


def test_timers_fire_in_order_at_their_time() -> None:
    async def main() -> list[tuple[str, float]]:
        loop, rung = asyncio.get_running_loop(), []

        async def bell(name: str, after: float) -> None:
            await asyncio.sleep(after)
            rung.append((name, loop.time()))

        await asyncio.gather(bell("c", 0.3), bell("a", 0.1), bell("b", 0.2), bell("a2", 0.1))
        return rung

    assert run_in_virtual_time(main()) == [("a", 0.1), ("a2", 0.1), ("b", 0.2), ("c", 0.3)]


def test_timeout_raises() -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        run_in_virtual_time(main())


def test_waiting_for_nothing_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="main"):
        run_in_virtual_time(main())


def test_executor_calls_run_immediately() -> None:
    async def main() -> list[int]:
        done: list[int] = []
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, done.append, 1)
        await asyncio.to_thread(done.append, 2)
        return done

    assert run_in_virtual_time(main()) == [1, 2]


def test_failed_executor_call_raises_where_it_is_awaited() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        run_in_virtual_time(main())
