"""A log directory: identity, lock, checkpoints, clean and unclean stops, creation and deletion of
partitions."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.log_dir import LogDir, LogDirError
from ottla_broker.log.maintenance import LogDirMaintenance, MaintenanceIntervals, maintain
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import iter_records
from tests.log_dirs import open_log_dir
from tests.unit.log.log_fixtures import (
    NOW,
    TOPIC_ID,
    Clock,
    FailingDisk,
    append_committed,
    batch,
    offsets,
    runtime,
    spans,
)


def opened(
    path: Path,
    *,
    node: int = 1,
    cluster: str | None = "cluster",
    clock: Clock | None = None,
    disk: OsDisk | None = None,
) -> LogDir:
    return open_log_dir(path, disk=disk, runtime=runtime(clock), node_id=node, cluster_id=cluster)


def close(directory: LogDir) -> None:
    asyncio.run(directory.close())


def kill(directory: LogDir) -> None:
    """Leaves the directory as SIGKILL does: nothing more is written, and the lock is released."""
    directory.storage.files.close_all()
    directory._lock.release()


def test_meta_properties_are_in_kafkas_format(tmp_path: Path) -> None:
    directory = opened(tmp_path / "data")
    values = dict(line.split("=", 1) for line in (tmp_path / "data/meta.properties").read_text().splitlines())
    assert values == {
        "version": "1",
        "node.id": "1",
        "cluster.id": "cluster",
        "directory.id": values["directory.id"],
    }
    assert len(values["directory.id"]) == 22
    identity = directory.directory_id
    close(directory)
    assert opened(tmp_path / "data").directory_id == identity


def test_cluster_id_is_set_once(tmp_path: Path) -> None:
    directory = opened(tmp_path, cluster=None)
    assert directory.cluster_id is None
    directory.set_cluster_id("first")
    directory.set_cluster_id("first")
    with pytest.raises(LogDirError, match="first"):
        directory.set_cluster_id("second")
    close(directory)
    assert opened(tmp_path, cluster=None).cluster_id == "first"


@pytest.mark.parametrize(
    ("node", "cluster", "named"), [(2, "cluster", "node.id=1"), (1, "other", "cluster.id=cluster")]
)
def test_directory_of_another_broker_is_rejected(tmp_path: Path, node: int, cluster: str, named: str) -> None:
    close(opened(tmp_path))
    with pytest.raises(LogDirError, match=named):
        opened(tmp_path, node=node, cluster=cluster)
    # The failed start released the lock.
    close(opened(tmp_path))


def test_old_meta_properties_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(LogDirError, match="version '0'"):
        opened(tmp_path)


def test_lock_excludes_this_process_and_others(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    with pytest.raises(LogDirError, match=r"\.lock is locked by process \d+"):
        opened(tmp_path)
    code = "import sys; from ottla_broker.log.disk import OsDisk; OsDisk().lock(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    path = {"PYTHONPATH": ":".join(sys.path)}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=path)
    assert "LockHeld" in refused.stderr
    close(directory)
    assert subprocess.run(command, capture_output=True, text=True, check=False, env=path).returncode == 0


def test_error_names_an_unusable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match="file"):
        opened(tmp_path / "file")


def test_clean_shutdown_and_start(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.broker_epoch = 77
    for partition in range(3):
        log = directory.create_log("my-topic", partition, TOPIC_ID, LogConfig())
        for n in range(5):
            append_committed(log, batch(2, producer=(partition, 0, 2 * n)), epoch=3)
    directory.logs["my-topic", 1].delete_records_before(4)
    close(directory)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 77}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (tmp_path / name).read_text() == "0\n3\nmy-topic 0 10\nmy-topic 1 10\nmy-topic 2 10\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nmy-topic 1 4\n"
    assert (tmp_path / "my-topic-2/partition.metadata").read_text().startswith("version: 0\ntopic_id: ")

    again = opened(tmp_path)
    assert again.was_clean_shutdown and again.previous_broker_epoch == 77
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log = again.logs["my-topic", 1]
    assert (log.start, log.end, log.high_watermark, log.recovery_point, log.topic_id) == (4, 10, 10, 10, TOPIC_ID)
    assert log.epochs.entries() == [(3, 4)]
    assert append_committed(log, batch(1, producer=(1, 0, 10))) == (10, 10)
    kill(again)
    after = opened(tmp_path)
    assert not after.was_clean_shutdown
    assert after.logs["my-topic", 1].end == 11
    # As last written to the checkpoint file.
    assert after.logs["my-topic", 1].high_watermark == 10


FOREIGN = LogConfig(segment_bytes=200)


def create_log_with_gaps(path: Path, *without: int) -> list[int]:
    """Creates a log of nine segments with a record each, without some of them, as Apache Kafka's
    cleaner leaves it. Returns the offsets that are left."""
    directory = opened(path)
    log = directory.create_log("topic", 0, TOPIC_ID, FOREIGN)
    for _ in range(9):
        append_committed(log, batch(1, size=90))
    asyncio.run(directory.logs["topic", 0].checkpoint())
    assert len(log.segments) == 9
    for at in without:
        for file in log.segments[at].paths:
            Path(file).unlink(missing_ok=True)
    asyncio.run(directory.write_checkpoints(recovery_points=True))
    kill(directory)
    return [at for at in range(9) if at not in without]


def records(log: PartitionLog) -> list[int]:
    """The offsets that a consumer reads."""
    found, at = list[int](), log.start
    while at < log.end:
        data = log.read(at, 1 << 20, up_to=log.end)
        found += [record.offset for _, record in iter_records(data)]
        at = spans(data)[-1][1] + 1
    return found


def attach_foreign(path: Path) -> LogDir:
    """A first start with logs that Apache Kafka wrote."""
    first = LogDir.attach(str(path), disk=OsDisk(), runtime=runtime(), node_id=1, cluster_id="cluster")
    first.load(lambda _: FOREIGN, gapless=False)
    return first


@pytest.mark.parametrize("points_lost", [False, True])
def test_gaps_of_an_adopted_log_are_not_treated_as_a_loss(tmp_path: Path, points_lost: bool) -> None:
    """Apache Kafka's cleaner leaves gaps between segments. In a log of this broker's a gap is a
    loss."""
    kept = create_log_with_gaps(tmp_path, 1, 4, 5)
    first = attach_foreign(tmp_path)
    assert records(first.logs["topic", 0]) == kept
    asyncio.run(first.adopt_foreign_logs())
    log = first.logs["topic", 0]
    append_committed(log, batch(1))
    assert records(log) == [*kept, 9]
    assert [one.next_offset() for one in log.segments][:-1] == [one.base for one in log.segments][1:]
    kill(first)
    if points_lost:
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
    again = opened(tmp_path).logs["topic", 0]
    assert (records(again), again.failure) == ([*kept, 9], None)


def test_gap_after_a_loss_of_power_is_a_loss_in_an_adopted_log_too(tmp_path: Path) -> None:
    create_log_with_gaps(tmp_path, 1)
    first = attach_foreign(tmp_path)
    asyncio.run(first.adopt_foreign_logs())
    gone = first.logs["topic", 0].segments[3].path
    kill(first)
    Path(gone).unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    assert records(opened(tmp_path).logs["topic", 0]) == [0, 2, 3]


@pytest.mark.parametrize("left", [0, 1, 30, 60])
def test_gap_that_was_half_filled_is_filled_again(tmp_path: Path, left: int) -> None:
    """The machine lost power during a first start; the next start is a first one again."""
    kept = create_log_with_gaps(tmp_path, 4)
    first = attach_foreign(tmp_path)
    asyncio.run(first.adopt_foreign_logs())
    filled = first.logs["topic", 0].segments[3]
    os.truncate(filled.path, filled.size - 61 + left)
    kill(first)
    again = attach_foreign(tmp_path)
    asyncio.run(again.adopt_foreign_logs())
    log = again.logs["topic", 0]
    assert (records(log), log.failure, log.segments[3].next_offset()) == (kept, None, 5)
    assert log.segments[3].size == filled.size


def test_open_transactions_of_an_adopted_log_are_aborted(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("topic", 0, TOPIC_ID, LogConfig())
    append_committed(log, batch(2, producer=(7, 3, 0), transactional=True), epoch=5)
    append_committed(log, batch(1), epoch=5)
    append_committed(log, batch(1, producer=(8, 0, 0), transactional=True), epoch=5)
    kill(directory)

    first = LogDir.attach(str(tmp_path), disk=OsDisk(), runtime=runtime(), node_id=1, cluster_id="cluster")
    first.load(lambda _: LogConfig(), gapless=False)
    asyncio.run(first.adopt_foreign_logs())
    for again in (first, kill_and_open(first, tmp_path)):
        log = again.logs["topic", 0]
        log.advance_high_watermark(log.end)
        assert (log.end, log.last_stable_offset, log.recovery_point) == (6, 6, 6)
        found = [(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted_transactions(0, 6)]
        assert found == [(7, 0, 4), (8, 3, 5)]


def kill_and_open(directory: LogDir, path: Path) -> LogDir:
    kill(directory)
    return opened(path)


def test_failure_of_one_partition_prevents_the_clean_shutdown_file(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, disk=disk)
    append_committed(directory.create_log("good", 0, TOPIC_ID, LogConfig()), batch(1))
    append_committed(directory.create_log("bad", 0, TOPIC_ID, LogConfig()), batch(1))
    disk.broken = {"bad-0"}
    close(directory)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    disk.broken = set()
    again = opened(tmp_path)
    assert {key: log.end for key, log in again.logs.items()} == {("bad", 0): 1, ("good", 0): 1}


def test_rule_13_recreated_topic_is_another_topic(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    assert directory.create_log("t", 0, TOPIC_ID, LogConfig()) is log
    with pytest.raises(KafkaError) as caught:
        directory.create_log("t", 0, UUID(int=9), LogConfig())
    assert caught.value.code is ErrorCode.inconsistent_topic_id
    append_committed(log, batch(5))
    directory.delete_log("t", 0)
    with pytest.raises(KafkaError):
        append_committed(log, batch(1))
    fresh = directory.create_log("t", 0, UUID(int=9), LogConfig())
    assert (fresh.end, fresh.topic_id) == (0, UUID(int=9))
    assert offsets(fresh) == []


def test_recreated_partition_has_no_checkpoint_of_the_deleted_one(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    for _ in range(9):
        append_committed(log, batch(1))
    log.delete_records_before(7)
    asyncio.run(log.checkpoint())
    asyncio.run(directory.write_checkpoints(recovery_points=True))
    directory.delete_log("t", 0)
    append_committed(directory.create_log("t", 0, UUID(int=9), LogConfig()), batch(3))
    kill(directory)
    again = opened(tmp_path).logs["t", 0]
    assert (again.start, again.end, again.high_watermark, again.recovery_point) == (0, 3, 0, 0)


def test_deleted_partitions_are_removed_in_the_background_and_after_a_crash(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for partition in range(2):
        append_committed(directory.create_log("gone", partition, TOPIC_ID, LogConfig()), batch(1))
    directory.delete_log("gone", 0)
    directory.delete_log("gone", 7)
    (folder,) = tmp_path.glob("gone-0.*-delete")
    asyncio.run(LogDirMaintenance(directory, MaintenanceIntervals()).remove_deleted_files())
    assert not folder.exists()
    directory.delete_log("gone", 1)
    kill(directory)
    again = opened(tmp_path)
    assert again.logs == {}
    asyncio.run(LogDirMaintenance(again, MaintenanceIntervals()).remove_deleted_files())
    assert list(tmp_path.glob("gone*")) == []


def test_damaged_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for partition in range(2):
        append_committed(directory.create_log("t", partition, TOPIC_ID, LogConfig()), batch(1))
    close(directory)
    (tmp_path / "t-0/partition.metadata").write_text("nonsense")
    again = opened(tmp_path)
    assert "partition.metadata" in str(again.logs["t", 0].failure)
    assert again.logs["t", 1].failure is None
    assert append_committed(again.logs["t", 1], batch(1)) == (1, 1)


@pytest.mark.parametrize("text", ["2\n0\n", "0\n1\nno offset\n", "0\n3\nt 0 1\n"])
def test_error_names_a_damaged_checkpoint(tmp_path: Path, text: str) -> None:
    close(opened(tmp_path))
    (tmp_path / "recovery-point-offset-checkpoint").write_text(text)
    with pytest.raises(LogDirError, match="recovery-point-offset-checkpoint"):
        opened(tmp_path)


def test_empty_checkpoint_file_has_no_offsets(tmp_path: Path) -> None:
    close(opened(tmp_path))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("")
    close(opened(tmp_path))


class TestMaintenance:
    def test_checkpoints_are_written_only_after_a_change(self, tmp_path: Path) -> None:
        directory = opened(tmp_path)
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
        care = LogDirMaintenance(directory, MaintenanceIntervals())
        path = tmp_path / "replication-offset-checkpoint"
        append_committed(log, batch(3))
        asyncio.run(care.write_high_watermarks())
        assert path.read_text() == "0\n1\nt 0 3\n"
        path.unlink()
        asyncio.run(care.write_high_watermarks())
        log.is_checkpoint_stale = True
        asyncio.run(care.write_high_watermarks())
        assert not path.exists()

    def test_flush_ms_bounds_the_time_without_a_sync(self, tmp_path: Path) -> None:
        clock = Clock()
        directory = opened(tmp_path, clock=clock)
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig(flush_ms=500))
        care = LogDirMaintenance(directory, MaintenanceIntervals())
        append_committed(log, batch(1))
        for later, flushed in ((0, 0), (499, 0), (1, 1)):
            clock.now_ms += later
            asyncio.run(care.sync_overdue_logs())
            assert log.flush.flushed_offset == flushed

    def test_recovery_point_advances_in_logs_with_many_unflushed_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ottla_broker.log.maintenance.CHECKPOINT_BYTES", 10_000)
        directory = opened(tmp_path)
        little = directory.create_log("little", 0, TOPIC_ID, LogConfig())
        much = directory.create_log("much", 0, TOPIC_ID, LogConfig())
        append_committed(little, batch(1))
        for _ in range(3):
            append_committed(much, batch(1, size=9_000))
        asyncio.run(LogDirMaintenance(directory, MaintenanceIntervals()).write_recovery_points())
        assert (little.recovery_point, much.recovery_point) == (0, 3)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nlittle 0 0\nmuch 0 3\n"

    def test_producers_expire_after_the_current_setting(self, tmp_path: Path) -> None:
        directory = opened(tmp_path, clock=Clock(NOW + 1000))
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
        log.append_as_leader(batch(1, producer=(7, 0, 0)), leader_epoch=0, now_ms=NOW)
        care = LogDirMaintenance(directory, MaintenanceIntervals())
        asyncio.run(care.remove_expired_producers())
        assert log.producers.get(7) is not None
        directory.producer_expiration_ms = 999
        asyncio.run(care.remove_expired_producers())
        assert log.producers.get(7) is None

    def test_maintenance_runs_until_it_is_cancelled(self, tmp_path: Path) -> None:
        directory = opened(tmp_path, clock=Clock(NOW + 10**9))
        log = directory.create_log("t", 0, TOPIC_ID, LogConfig(retention_ms=1, file_delete_delay_ms=0))
        log.append_as_leader(batch(1), leader_epoch=0, now_ms=NOW)
        log.advance_high_watermark(1)

        def leftovers() -> list[Path]:
            return list(tmp_path.glob("t-0/*.deleted"))

        async def run() -> None:
            task = asyncio.ensure_future(maintain(directory, MaintenanceIntervals(1, 1, 1, 1)))
            until = time.monotonic() + 20
            while log.start == 0 or leftovers():
                await asyncio.sleep(0.01)
                assert time.monotonic() < until
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(run())
        assert log.start == 1
