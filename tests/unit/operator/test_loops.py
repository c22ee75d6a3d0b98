"""Loops that keep things as wished, on virtual time."""

import asyncio
from itertools import pairwise

import pytest

from ottla_operator.kube.loops import LONGEST_WAIT_S, Loops
from tests.sim.virtual_loop import run_in_virtual_time


class Trouble(Exception):
    pass


async def ignore(key: str, error: Exception) -> None:
    pass


def test_it_looks_when_woken_and_when_its_time_has_come_and_once_at_a_time() -> None:
    async def main() -> None:
        looks: list[float] = []
        now = 0

        async def look(key: str) -> float:
            nonlocal now
            now += 1
            assert now == 1
            looks.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)
            now -= 1
            return 10

        loops = Loops(look, (Trouble,), ignore)
        loops.wake("a")
        assert not loops._loops, "nobody acts yet"
        loops.start()
        for _ in range(5):
            loops.wake("a")
        await asyncio.sleep(0.5)
        loops.wake("a")  # while it looks: it looks again
        await asyncio.sleep(20)
        assert looks == pytest.approx([0, 1.05, 12.1])
        await loops.stop()

    run_in_virtual_time(main())


def test_trouble_is_told_and_tried_again_after_ever_longer_waits() -> None:
    async def main() -> None:
        looks: list[float] = []
        told: list[str] = []

        async def look(key: str) -> None:
            looks.append(asyncio.get_running_loop().time())
            raise Trouble(f"attempt {len(looks)}")

        async def tell(key: str, error: Exception) -> None:
            told.append(str(error))

        loops = Loops(look, (Trouble,), tell)
        loops.start()
        loops.wake("a")
        await asyncio.sleep(200)
        waits = [after - before for before, after in pairwise(looks)]
        assert waits[:3] == pytest.approx([0.55, 1.05, 2.05]) and max(waits) == pytest.approx(LONGEST_WAIT_S + 0.05)
        assert told[:2] == ["attempt 1", "attempt 2"]
        await loops.stop()

    run_in_virtual_time(main())


def test_a_mistake_of_ours_is_told_too_or_what_was_told_before_would_stay_for_ever() -> None:
    async def main() -> None:
        told: list[str] = []

        async def look(key: str) -> None:
            raise KeyError("spec")

        async def tell(key: str, error: Exception) -> None:
            told.append(str(error))

        loops = Loops(look, (Trouble,), tell)
        loops.start()
        loops.wake("a")
        await asyncio.sleep(0.1)
        assert told == ["the operator has made a mistake, which its log tells: KeyError: 'spec'"]
        await loops.stop()

    run_in_virtual_time(main())


def test_what_is_gone_is_no_longer_looked_at_until_it_is_there_again() -> None:
    async def main() -> None:
        looks = 0

        async def look(key: str) -> float | None:
            nonlocal looks
            looks += 1
            return None

        loops = Loops(look, (Trouble,), ignore)
        loops.start()
        loops.wake("a")
        await asyncio.sleep(100)
        assert looks == 1 and not loops._loops
        loops.wake("a")
        await asyncio.sleep(1)
        assert looks == 2
        await loops.stop()

    run_in_virtual_time(main())


def test_a_mistake_of_ours_ends_no_loop_not_even_one_in_telling_what_is_wrong() -> None:
    async def main() -> None:
        looks = 0

        async def look(key: str) -> float | None:
            nonlocal looks
            looks += 1
            raise Trouble if looks % 2 else AssertionError

        async def tell(key: str, error: Exception) -> None:
            raise AssertionError

        loops = Loops(look, (Trouble,), tell)
        loops.start()
        loops.wake("a")
        await asyncio.sleep(10)
        assert looks > 3
        await loops.stop()

    run_in_virtual_time(main())
