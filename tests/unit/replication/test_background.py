"""Background tasks of a broker: failures, and settings that change."""

import asyncio
import logging
from pathlib import Path

import pytest

from ottla_broker.http.server import readiness_problems
from ottla_broker.replication.log_manager import LogManager
from tests.unit.async_tests import async_test, run_event_loop
from tests.unit.broker_without_sockets import run_broker


def test_failed_log_maintenance_is_logged_and_makes_the_broker_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(self: LogManager) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LogManager, "run", fail)

    async def run() -> None:
        async with run_broker(tmp_path) as broker:
            await run_event_loop()
            assert readiness_problems(broker) == ["background task failed: RuntimeError('a bug')"]

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "a bug" in caplog.text


@async_test
async def test_dynamic_settings_of_logs_are_applied(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as broker:
        (directory,) = broker.log_dirs
        broker.config.set_dynamic({"producer.id.expiration.ms": "7", "log.cleaner.backoff.ms": "8"}, {})
        assert (directory.producer_expiration_ms, directory.cleaner.config.backoff_ms) == (7, 8)
