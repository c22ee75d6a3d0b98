"""The simulated register is what brokers must expect of a real one: it can be slow, away, or silent after it has done what was asked."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue, Voter
from tests.sim.register import RegisterStore, SimulatedRegister
from tests.sim.virtual_loop import run_in_virtual_time

ME = Voter(1, UUID(int=1))


def value(epoch: int) -> RegisterValue:
    return RegisterValue("c", epoch, 1, (ME,), (1,), 1, 0, 3_000)


def on_a_store(main: Callable[[RegisterStore, SimulatedRegister], Coroutine[Any, Any, None]]) -> None:
    store = RegisterStore(Random(1))
    run_in_virtual_time(main(store, SimulatedRegister(store, "broker-1")))


def test_the_second_of_two_swaps_of_one_version_is_a_conflict() -> None:
    async def main(_: RegisterStore, register: SimulatedRegister) -> None:
        seen = await register.read()
        await register.swap(seen, value(1))
        with pytest.raises(Conflict):
            await register.swap(seen, value(1))

    on_a_store(main)


def test_a_watch_ends_at_a_change_or_in_time() -> None:
    async def main(_: RegisterStore, register: SimulatedRegister) -> None:
        loop = asyncio.get_running_loop()
        seen = await register.read()
        assert await register.watch(seen, 30.0) == seen
        assert 30 < loop.time() < 31
        watching = loop.create_task(register.watch(seen, 30.0))
        await asyncio.sleep(1)
        await register.swap(seen, value(1))
        assert (await watching).value == value(1)
        assert loop.time() < 33

    on_a_store(main)


def test_who_is_cut_off_waits_and_then_hears_so() -> None:
    async def main(store: RegisterStore, register: SimulatedRegister) -> None:
        store.cut("broker-1")
        with pytest.raises(RegisterError):
            await register.read()
        reading = asyncio.get_running_loop().create_task(register.read())
        await asyncio.sleep(1)
        store.mend("broker-1")
        assert (await reading).value is None

    on_a_store(main)


def test_a_swap_may_be_done_although_nobody_says_so() -> None:
    async def main(store: RegisterStore, register: SimulatedRegister) -> None:
        seen = await register.read()
        swapping = asyncio.get_running_loop().create_task(register.swap(seen, value(1)))
        await store.changed()
        store.leave()
        with pytest.raises(RegisterError):
            await swapping
        store.come_back()
        assert (await register.read()).value == value(1)

    on_a_store(main)
