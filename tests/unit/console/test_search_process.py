"""The worker process of a search gives way to the broker."""

import os
import subprocess
import sys
from collections.abc import Sequence

from ottla_broker.console.search_messages import StartSearch
from ottla_broker.console.search_process import SearchProcess
from ottla_broker.console.search_worker import NICENESS
from ottla_broker.registry.schema import SchemaSource
from tests.unit.async_tests import async_test


async def find_no_schemas(_: Sequence[int]) -> dict[int, SchemaSource | None]:
    return {}


@async_test
async def test_worker_is_nice_and_has_a_session_of_its_own() -> None:
    start = StartSearch("true", None, "auto")
    async with SearchProcess(start, find_no_schemas) as process:
        assert process.pid is not None
        assert os.getsid(process.pid) == process.pid
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.nice(0) + NICENESS)


def test_priority_is_lowered_before_libraries_are_loaded() -> None:
    code = (
        "import sys; from ottla_broker.console import search_worker; print('cel' in sys.modules, 'kio' in sys.modules)"
    )
    completed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert completed.stdout == "False False\n"
