"""The simulated register behaves as brokers must expect of a real one: slow, unavailable, or silent
after a write.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue
from tests.sim.register import SimulatedRegister, SimulatedRegisterStore
from tests.sim.virtual_loop import run_in_virtual_time

ME = Voter(1, UUID(int=1))


def value(epoch: int) -> RegisterValue:
    return RegisterValue("c", epoch, 1, (ME,), (1,), 1, 0, 3_000)


def run_with_store(main: Callable[[SimulatedRegisterStore, SimulatedRegister], Coroutine[Any, Any, None]]) -> None:
    store = SimulatedRegisterStore(Random(1))
    run_in_virtual_time(main(store, SimulatedRegister(store, "broker-1")))


def test_second_swap_of_a_version_is_a_conflict() -> None:
    async def main(_: SimulatedRegisterStore, register: SimulatedRegister) -> None:
        seen = await register.read()
        await register.swap(seen, value(1))
        with pytest.raises(Conflict):
            await register.swap(seen, value(1))

    run_with_store(main)


def test_watch_ends_at_a_change_or_at_its_timeout() -> None:
    async def main(_: SimulatedRegisterStore, register: SimulatedRegister) -> None:
        loop = asyncio.get_running_loop()
        seen = await register.read()
        assert await register.watch(seen, 30.0) == seen
        assert 30 < loop.time() < 31
        watching = loop.create_task(register.watch(seen, 30.0))
        await asyncio.sleep(1)
        await register.swap(seen, value(1))
        assert (await watching).value == value(1)
        assert loop.time() < 33

    run_with_store(main)


def test_call_of_a_cut_host_times_out() -> None:
    async def main(store: SimulatedRegisterStore, register: SimulatedRegister) -> None:
        store.cut("broker-1")
        with pytest.raises(RegisterError):
            await register.read()
        reading = asyncio.get_running_loop().create_task(register.read())
        await asyncio.sleep(1)
        store.restore("broker-1")
        assert (await reading).value is None

    run_with_store(main)


def test_failed_swap_may_have_been_executed() -> None:
    async def main(store: SimulatedRegisterStore, register: SimulatedRegister) -> None:
        seen = await register.read()
        swapping = asyncio.get_running_loop().create_task(register.swap(seen, value(1)))
        await store.wait_for_change()
        store.make_unavailable()
        with pytest.raises(RegisterError):
            await swapping
        store.make_available()
        assert (await register.read()).value == value(1)

    run_with_store(main)
