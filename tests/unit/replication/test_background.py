"""Background work that dies must not die unseen."""

import asyncio
import logging
from pathlib import Path

import pytest

from ottla_broker.http.server import not_ready
from ottla_broker.replication.care import LogCare
from tests.unit.running import running


def test_a_maintenance_that_ends_turns_readiness_red_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(self: LogCare) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(LogCare, "run", breaks)

    async def run() -> None:
        async with running(tmp_path) as broker:
            for _ in range(3):
                await asyncio.sleep(0)
            assert not_ready(broker) == ["background work ended: RuntimeError('a mistake of ours')"]

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "a mistake of ours" in caplog.text
