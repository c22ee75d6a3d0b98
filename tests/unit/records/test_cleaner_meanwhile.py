"""What happens to a log while it is cleaned, and what stops the cleaner."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import read_offsets
from ottla_broker.log.cleaner import CHECKPOINT, CleanerConfig
from tests.unit.records.cleaning import NOW_MS, House
from tests.waiting import eventually_async


def test_a_truncation_meanwhile_stops_it_and_leaves_nothing_behind(house: House) -> None:
    house.fill()
    meanwhile(house, lambda: house.log.truncate_to(50))
    assert house.log.end == 50
    assert len(house.records()) == 50
    assert not [name for name in house.files() if name.endswith((file_names.CLEANED, file_names.SWAP))]
    assert house.cleaner.checkpoints == {}


def test_retention_meanwhile_stops_it(house: House) -> None:
    house.fill()
    meanwhile(house, lambda: (house.log.delete_records_before(60), house.log.apply_retention(NOW_MS)))
    assert [r.offset for r in house.records()] == list(range(60, 100))
    assert house.log.failure is None
    assert house.clean()
    assert [r.offset for r in house.records()] == list(range(90, 100))


def test_a_deleted_topic_stops_it(house: House) -> None:
    house.fill()

    def delete() -> None:
        house.logs.clear()
        Path(house.folder).rename(house.folder + "-delete")

    meanwhile(house, delete)
    assert house.log.failure is None


def test_the_protocol_s_thread_goes_on_appending(house: House) -> None:
    house.fill()
    meanwhile(house, lambda: house.write("key-3", "newest"))
    assert house.table()[b"key-3"] == b"newest"
    assert [r.offset for r in house.records()] == list(range(90, 101))


def test_cancelled_it_stops_and_leaves_nothing_behind(house: House) -> None:
    house.fill()
    size = house.log.size

    async def stopped() -> None:
        reading = Gate(house)
        task = asyncio.ensure_future(house.cleaner.clean_filthiest_log())
        await reading.entered()
        task.cancel()
        reading.go_on()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert house.log.size == size
    assert not [name for name in house.files() if name.endswith((file_names.CLEANED, file_names.SWAP))]


def test_the_pace_is_kept(tmp_path: Path) -> None:
    """A thousand bytes a second would take far longer than the test has: the loop's clock is what is asked."""
    house = House(tmp_path, settings=CleanerConfig(io_max_bytes_per_second=1000))
    house.fill()
    size = house.log.size
    slept: list[float] = []

    async def run() -> None:
        real = asyncio.sleep

        async def noted(delay: float) -> None:
            slept.append(delay)
            await real(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", noted)
            await house.cleaner.clean_filthiest_log()

    asyncio.run(run())
    assert sum(slept) > size / 1000


def test_a_log_made_anew_under_the_same_name_is_another(house: House) -> None:
    house.fill()
    house.clean()
    house.cleaner.forget("t", 0)
    assert house.cleaner.checkpoints == {}

    async def written() -> bool:
        return read_offsets(house.disk, f"{house.path}/{CHECKPOINT}") == {}

    async def run() -> None:
        house.cleaner.config = CleanerConfig(enabled=False, backoff_ms=10**9)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(house.cleaner.run())
            await eventually_async(written)
            running.cancel()

    asyncio.run(run())


class Gate:
    """Holds the cleaner's thread at its next offloaded call."""

    def __init__(self, house: House) -> None:
        self._entered = asyncio.Event()
        self._open = threading.Event()
        loop = asyncio.get_running_loop()
        original = house.disk.open
        held = False

        def opened(path: str, *, create: bool = False, read_only: bool = False):  # type: ignore[no-untyped-def]
            nonlocal held
            if not held and threading.current_thread() is not threading.main_thread():
                held = True
                loop.call_soon_threadsafe(self._entered.set)
                self._open.wait(30)
            return original(path, create=create, read_only=read_only)

        house.disk.open = opened  # type: ignore[method-assign]

    async def entered(self) -> None:
        await asyncio.wait_for(self._entered.wait(), 30)

    def go_on(self) -> None:
        self._open.set()


def meanwhile(house: House, act: Callable[[], object]) -> None:
    """Cleans, and acts on the protocol's thread while the cleaner's waits."""

    async def run() -> None:
        gate = Gate(house)
        task = asyncio.ensure_future(house.cleaner.clean_filthiest_log())
        await gate.entered()
        act()
        gate.go_on()
        await task

    asyncio.run(run())
