"""Maintenance of a log directory: checkpoints, flushes, recovery points, expiry of producers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.maintenance import LogDirMaintenance, MaintenanceIntervals, maintain
from tests.unit.async_tests import async_test, wait_until
from tests.unit.log.log_directories import open_directory
from tests.unit.log.log_fixtures import (
    NOW,
    TOPIC_ID,
    Clock,
    append_committed,
    batch,
)


class TestMaintenance:
    def test_checkpoints_are_written_only_after_a_change(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path)
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
        maintenance = LogDirMaintenance(directory, MaintenanceIntervals())
        path = tmp_path / "replication-offset-checkpoint"
        append_committed(log, batch(3))
        asyncio.run(maintenance.write_high_watermarks())
        assert path.read_text() == "0\n1\nt 0 3\n"
        path.unlink()
        asyncio.run(maintenance.write_high_watermarks())
        log.is_checkpoint_stale = True
        asyncio.run(maintenance.write_high_watermarks())
        assert not path.exists()

    def test_flush_ms_bounds_the_time_without_a_sync(self, tmp_path: Path) -> None:
        clock = Clock()
        directory = open_directory(tmp_path, clock=clock)
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig(flush_ms=500))
        maintenance = LogDirMaintenance(directory, MaintenanceIntervals())
        append_committed(log, batch(1))
        for later, flushed in ((0, 0), (499, 0), (1, 1)):
            clock.now_ms += later
            asyncio.run(maintenance.sync_overdue_logs())
            assert log.flush.flushed_offset == flushed

    def test_recovery_point_advances_in_logs_with_many_unflushed_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ottla_broker.log.maintenance.CHECKPOINT_BYTES", 10_000)
        directory = open_directory(tmp_path)
        little = directory.create_log("little", 0, TOPIC_ID, LogConfig())
        much = directory.create_log("much", 0, TOPIC_ID, LogConfig())
        append_committed(little, batch(1))
        for _ in range(3):
            append_committed(much, batch(1, size=9_000))
        asyncio.run(LogDirMaintenance(directory, MaintenanceIntervals()).write_recovery_points())
        assert (little.recovery_point, much.recovery_point) == (0, 3)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nlittle 0 0\nmuch 0 3\n"

    def test_producers_expire_after_the_current_setting(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path, clock=Clock(NOW + 1000))
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
        log.append_as_leader(batch(1, producer=(7, 0, 0)), leader_epoch=0, now_ms=NOW)
        maintenance = LogDirMaintenance(directory, MaintenanceIntervals())
        asyncio.run(maintenance.remove_expired_producers())
        assert log.producers.get(7) is not None
        directory.producer_expiration_ms = 999
        asyncio.run(maintenance.remove_expired_producers())
        assert log.producers.get(7) is None

    def test_other_tasks_run_between_slices_of_logs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ottla_broker.log.maintenance.LOGS_PER_SLICE", 2)
        directory = open_directory(tmp_path)
        for partition in range(6):
            directory.create_log("t", partition, TOPIC_ID, LogConfig())
        maintenance = LogDirMaintenance(directory, MaintenanceIntervals())

        async def count_iterations(job: Callable[[], Awaitable[None]]) -> int:
            loop, iterations = asyncio.get_running_loop(), 0

            def on_iteration() -> None:
                nonlocal iterations
                iterations += 1
                loop.call_soon(on_iteration)

            loop.call_soon(on_iteration)
            await job()
            return iterations

        for job in (
            maintenance.checkpoint_rolled_logs,
            maintenance.sync_overdue_logs,
            maintenance.remove_expired_producers,
        ):
            assert asyncio.run(count_iterations(job)) == 3

    @async_test
    async def test_maintenance_runs_until_it_is_cancelled(self, tmp_path: Path) -> None:
        directory = open_directory(tmp_path, clock=Clock(NOW + 10**9))
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig(retention_ms=1, file_delete_delay_ms=0))
        log.append_as_leader(batch(1), leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(1)

        def leftovers() -> list[Path]:
            return list(tmp_path.glob("t-0/*.deleted"))

        task = asyncio.ensure_future(maintain(directory, MaintenanceIntervals(1, 1, 1, 1)))
        await wait_until(lambda: log.start == 1 and not leftovers())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
