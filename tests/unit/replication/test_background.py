"""Background work that dies must not die unseen."""

import asyncio
import logging
from pathlib import Path

import pytest

from ottla_broker.http.server import readiness_problems
from ottla_broker.replication.log_maintenance import LogMaintenance
from tests.unit.broker_without_sockets import run_broker


def test_a_maintenance_that_ends_turns_readiness_red_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(self: LogMaintenance) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(LogMaintenance, "run", breaks)

    async def run() -> None:
        async with run_broker(tmp_path) as broker:
            for _ in range(3):
                await asyncio.sleep(0)
            assert readiness_problems(broker) == ["background task failed: RuntimeError('a mistake of ours')"]

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "a mistake of ours" in caplog.text


def test_what_may_change_while_it_runs_is_followed(tmp_path: Path) -> None:
    async def run() -> None:
        async with run_broker(tmp_path) as broker:
            (directory,) = broker.log_dirs
            broker.config.set_dynamic({"producer.id.expiration.ms": "7", "log.cleaner.backoff.ms": "8"}, {})
            assert (directory.producer_expiration_ms, directory.cleaner.config.backoff_ms) == (7, 8)

    asyncio.run(run())
