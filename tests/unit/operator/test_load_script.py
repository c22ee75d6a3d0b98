"""The load of `ottla up`: its processes end with it."""

import asyncio
import os
from pathlib import Path

import pytest

from ottla_operator.local.live_view import LiveView
from ottla_operator.local.load import LoadScript
from tests.waiting import eventually

WAITS = """
import os, signal, sys, time
from pathlib import Path

def stop(*_):
    Path(sys.argv[0]).with_name("stopped").touch()
    sys.exit()

signal.signal(signal.SIGTERM, stop)
Path(sys.argv[0]).with_name("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


def test_processes_have_ended_after_a_stop_although_their_task_was_cancelled_first(tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text(WAITS)

    async def run() -> None:
        load = LoadScript(script, tmp_path, "127.0.0.1:1", LiveView(say=lambda *_: None))
        task = asyncio.create_task(load.run({}))
        pid = tmp_path / "pid"
        await asyncio.to_thread(eventually, lambda: pid.exists() and pid.read_text() != "")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await load.stop()
        await load.stop()

    asyncio.run(run())
    assert (tmp_path / "stopped").exists(), "the script had no time to stop what it had started"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
