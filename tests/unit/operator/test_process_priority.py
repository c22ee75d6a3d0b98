"""Processes that give way to others: their nice value, and that of their session."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla_operator.local.live_view import LiveView
from ottla_operator.local.load import NICENESS, LoadScript
from ottla_operator.local.process_priority import lower_priority
from tests.unit.async_tests import async_test

WAITS = [sys.executable, "-c", "input()"]


def session_niceness(pid: int) -> int:
    """Skips the test where the kernel has no autogroups."""
    file = Path(f"/proc/{pid}/autogroup")
    if not os.access(file, os.W_OK):
        pytest.skip("this system has no /proc/PID/autogroup that can be written")
    return int(file.read_text().rpartition(" ")[2])


@contextmanager
def waiting_process(*, new_session: bool) -> Iterator[int]:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, start_new_session=new_session) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_process_gives_way_to_others() -> None:
    with waiting_process(new_session=False) as pid:
        lower_priority(pid, 3)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.nice(0) + 3)
        lower_priority(pid, 19)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19


def test_session_gives_way_to_other_sessions() -> None:
    with waiting_process(new_session=True) as first, waiting_process(new_session=True) as second:
        for pid in (first, second):  # without a pause in between, which Linux requires of users
            lower_priority(pid, 7)
        assert [session_niceness(it) for it in (first, second)] == [min(19, os.nice(0) + 7)] * 2


def test_process_in_the_session_of_others_changes_nothing_for_them() -> None:
    with waiting_process(new_session=False) as pid:
        before = session_niceness(os.getpid())
        lower_priority(pid, 7)
        assert session_niceness(os.getpid()) == before


def test_process_that_has_exited_is_ignored() -> None:
    with waiting_process(new_session=True) as pid:
        pass
    lower_priority(pid, 5)


SCRIPT = """
import os, pathlib
while os.getpriority(os.PRIO_PROCESS, 0) < min(19, {niceness}):
    os.sched_yield()
pathlib.Path(r"{file}").write_text(str(os.getsid(0) == os.getpid()))
import signal; signal.pause()
"""


@async_test
async def test_load_gives_way_with_its_session(tmp_path: Path) -> None:
    script, file = tmp_path / "load.py", tmp_path / "started"
    script.write_text(SCRIPT.format(niceness=os.nice(0) + NICENESS, file=file))
    load = LoadScript(script, tmp_path, "127.0.0.1:1", LiveView(say=lambda *_: None))
    running = asyncio.create_task(load.run({}))
    async with asyncio.timeout(15):
        while not file.exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)
    await load.stop()
    await running
    assert file.read_text() == "True"
