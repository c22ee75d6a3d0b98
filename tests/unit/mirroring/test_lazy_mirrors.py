"""A broker of a cluster without mirrors does not import what serves them."""

import subprocess
import sys
from pathlib import Path

START_AND_STOP = """
import asyncio, sys
from pathlib import Path
from tests.unit.broker_without_sockets import run_broker

async def start_and_stop():
    async with run_broker(Path(sys.argv[1])) as broker:
        assert broker.is_active_controller
        print(*sys.modules)

asyncio.run(start_and_stop())
"""


def test_a_broker_without_mirrors_does_not_import_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START_AND_STOP, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    assert "ottla_broker.mirroring.lazy_mirrors" in modules
    mirroring = {"mirror_manager", "synchronizer", "source_fetcher"}
    assert not modules & {*(f"ottla_broker.mirroring.{it}" for it in mirroring), "ottla_broker.wire.client"}
