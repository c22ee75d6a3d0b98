"""The worker process of a search gives way to the broker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_broker.console.search_messages import StartSearch
from ottla_broker.console.search_process import SearchProcess
from ottla_broker.console.search_worker import NICENESS
from tests.unit.async_tests import async_test

HAS_AUTOGROUPS = Path("/proc/self/autogroup").exists()


def read_autogroup(pid: int) -> str:
    """Where the system has none: as it should be."""
    return Path(f"/proc/{pid}/autogroup").read_text() if HAS_AUTOGROUPS else f"nice {NICENESS}\n"


async def find_no_schemas(_: object) -> dict[int, None]:
    return {}


@async_test
async def test_worker_has_a_nice_session_of_its_own() -> None:
    start = StartSearch("true", None, "auto", is_export=False)
    own_autogroup = read_autogroup(os.getpid())
    async with SearchProcess(start, find_no_schemas) as process:
        assert process.pid is not None
        assert os.getsid(process.pid) == process.pid
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.nice(0) + NICENESS)
        assert read_autogroup(process.pid).endswith(f"nice {NICENESS}\n")
        assert read_autogroup(os.getpid()) == own_autogroup


@pytest.mark.skipif(not HAS_AUTOGROUPS, reason="this system has no autogroups")
def test_priority_of_a_session_that_is_not_the_workers_stays() -> None:
    code = "from ottla_broker.console.search_worker import lower_priority; lower_priority()"
    before = read_autogroup(os.getpid())
    subprocess.run([sys.executable, "-c", code], check=True)
    assert read_autogroup(os.getpid()) == before


def test_priority_is_lowered_before_libraries_are_loaded() -> None:
    code = (
        "import sys; from ottla_broker.console import search_worker; print('cel' in sys.modules, 'kio' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "False False\n"
