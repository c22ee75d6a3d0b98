"""Changes to a log while it is cleaned, and what stops the cleaner."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import read_offsets
from ottla_broker.log.cleaner import CHECKPOINT, CleanerConfig
from tests.unit.async_tests import async_test
from tests.unit.records.compacted_log import NOW_MS, CompactedLog
from tests.waiting import eventually_async


def test_truncation_stops_cleaning_without_leftovers(compacted: CompactedLog) -> None:
    compacted.fill()
    clean_while(compacted, lambda: compacted.log.truncate_to(50))
    assert compacted.log.end == 50
    assert len(compacted.records()) == 50
    assert not [name for name in compacted.files() if name.endswith((file_names.CLEANED, file_names.SWAP))]
    assert compacted.cleaner.checkpoints == {}


def test_retention_stops_cleaning(compacted: CompactedLog) -> None:
    compacted.fill()
    clean_while(compacted, lambda: (compacted.log.delete_records_before(60), compacted.log.apply_retention(NOW_MS)))
    assert [r.offset for r in compacted.records()] == list(range(60, 100))
    assert compacted.log.failure is None
    assert compacted.clean()
    assert [r.offset for r in compacted.records()] == list(range(90, 100))


def test_deletion_of_the_topic_stops_cleaning(compacted: CompactedLog) -> None:
    compacted.fill()

    def delete() -> None:
        compacted.logs.clear()
        Path(compacted.folder).rename(compacted.folder + "-delete")

    clean_while(compacted, delete)
    assert compacted.log.failure is None


def test_appends_continue_during_cleaning(compacted: CompactedLog) -> None:
    compacted.fill()
    clean_while(compacted, lambda: compacted.write("key-3", "newest"))
    assert compacted.table()[b"key-3"] == b"newest"
    assert [r.offset for r in compacted.records()] == list(range(90, 101))


def test_cancelled_cleaning_stops_without_leftovers(compacted: CompactedLog) -> None:
    compacted.fill()
    size = compacted.log.size

    async def clean_and_cancel() -> None:
        gate = Gate(compacted)
        task = asyncio.ensure_future(compacted.cleaner.clean_filthiest_log())
        await gate.wait_until_entered()
        task.cancel()
        gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(clean_and_cancel())
    assert compacted.log.size == size
    assert not [name for name in compacted.files() if name.endswith((file_names.CLEANED, file_names.SWAP))]


def test_io_max_bytes_per_second_paces_cleaning(tmp_path: Path) -> None:
    """At 1000 bytes a second the test would take too long, so delays are recorded and not slept."""
    compacted = CompactedLog(tmp_path, cleaner_config=CleanerConfig(io_max_bytes_per_second=1000))
    compacted.fill()
    size = compacted.log.size
    slept: list[float] = []

    async def run() -> None:
        real = asyncio.sleep

        async def record_delay(delay: float) -> None:
            slept.append(delay)
            await real(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", record_delay)
            await compacted.cleaner.clean_filthiest_log()

    asyncio.run(run())
    assert sum(slept) > size / 1000


@async_test
async def test_recreated_log_has_no_cleaner_checkpoint(compacted: CompactedLog) -> None:
    compacted.fill()
    await compacted.cleaner.clean_filthiest_log()
    compacted.cleaner.forget_log("t", 0)
    assert compacted.cleaner.checkpoints == {}

    async def is_checkpoint_file_empty() -> bool:
        return read_offsets(compacted.disk, f"{compacted.path}/{CHECKPOINT}") == {}

    compacted.cleaner.config = CleanerConfig(enabled=False, backoff_ms=10**9)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(compacted.cleaner.run())
        await eventually_async(is_checkpoint_file_empty)
        running.cancel()


@async_test
async def test_full_disk_does_not_end_the_cleaner(compacted: CompactedLog) -> None:
    compacted.fill()
    await compacted.cleaner.clean_filthiest_log()
    compacted.cleaner.forget_log("t", 0)
    original, failures = compacted.disk.replace_file, 0

    def replace_file(path: str, data: bytes) -> None:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise OSError(errno.ENOSPC, "No space left on device", path)
        original(path, data)

    async def is_checkpoint_file_empty() -> bool:
        return read_offsets(compacted.disk, f"{compacted.path}/{CHECKPOINT}") == {}

    compacted.disk.replace_file = replace_file  # type: ignore[method-assign]
    compacted.cleaner.config = CleanerConfig(enabled=False, backoff_ms=1)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(compacted.cleaner.run())
        await eventually_async(is_checkpoint_file_empty)
        running.cancel()
    assert failures == 2


class Gate:
    """Holds the cleaner's thread at the next file that it opens."""

    def __init__(self, compacted: CompactedLog) -> None:
        self._entered = asyncio.Event()
        self._open = threading.Event()
        loop = asyncio.get_running_loop()
        original = compacted.disk.open
        held = False

        def wait_and_open(path: str, *, create: bool = False, read_only: bool = False):  # type: ignore[no-untyped-def]
            nonlocal held
            if not held and threading.current_thread() is not threading.main_thread():
                held = True
                loop.call_soon_threadsafe(self._entered.set)
                self._open.wait(30)
            return original(path, create=create, read_only=read_only)

        compacted.disk.open = wait_and_open  # type: ignore[method-assign]

    async def wait_until_entered(self) -> None:
        await asyncio.wait_for(self._entered.wait(), 30)

    def release(self) -> None:
        self._open.set()


def clean_while(compacted: CompactedLog, act: Callable[[], object]) -> None:
    """Cleans, and calls `act` on the event loop's thread while the cleaner's is held."""

    async def run() -> None:
        gate = Gate(compacted)
        task = asyncio.ensure_future(compacted.cleaner.clean_filthiest_log())
        await gate.wait_until_entered()
        act()
        gate.release()
        await task

    asyncio.run(run())
