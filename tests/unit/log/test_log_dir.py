"""A log directory: identity, lock, checkpoints, clean and unclean stops, creation and deletion of
partitions."""

import asyncio
import errno
import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.maintenance import LogDirMaintenance, MaintenanceIntervals
from ottla_broker.log.meta_properties import LogDirError
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.log_directories import close_directory, kill_directory, open_directory
from tests.unit.log.log_fixtures import (
    TOPIC_ID,
    FailingDisk,
    append_committed,
    batch,
    offsets,
)


def test_meta_properties_are_in_kafkas_format(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "data")
    values = dict(line.split("=", 1) for line in (tmp_path / "data/meta.properties").read_text().splitlines())
    assert values == {
        "version": "1",
        "node.id": "1",
        "cluster.id": "cluster",
        "directory.id": values["directory.id"],
    }
    assert len(values["directory.id"]) == 22
    identity = directory.directory_id
    close_directory(directory)
    assert open_directory(tmp_path / "data").directory_id == identity


def test_missing_properties_are_added_to_the_others(tmp_path: Path) -> None:
    found = "version=1\nnode.id=1\ncluster.id=new\nprevious.cluster.id=old\n"
    (tmp_path / "meta.properties").write_text(found)
    directory = open_directory(tmp_path, cluster=None)
    identity = directory.directory_id
    close_directory(directory)
    again = open_directory(tmp_path, cluster=None)
    assert (again.cluster_id, again.previous_cluster_id, again.directory_id) == ("new", "old", identity)
    close_directory(again)


def test_cluster_id_is_set_once(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, cluster=None)
    assert directory.cluster_id is None
    directory.set_cluster_id("first")
    directory.set_cluster_id("first")
    with pytest.raises(LogDirError, match="first"):
        directory.set_cluster_id("second")
    close_directory(directory)
    assert open_directory(tmp_path, cluster=None).cluster_id == "first"


@pytest.mark.parametrize(
    ("node", "cluster", "named"), [(2, "cluster", "node.id=1"), (1, "other", "cluster.id=cluster")]
)
def test_directory_of_another_broker_is_rejected(tmp_path: Path, node: int, cluster: str, named: str) -> None:
    close_directory(open_directory(tmp_path))
    with pytest.raises(LogDirError, match=named):
        open_directory(tmp_path, node=node, cluster=cluster)
    # The failed start released the lock.
    close_directory(open_directory(tmp_path))


def test_old_meta_properties_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(LogDirError, match="version '0'"):
        open_directory(tmp_path)


def test_lock_excludes_this_process_and_others(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    with pytest.raises(LogDirError, match=r"\.lock is locked by process \d+"):
        open_directory(tmp_path)
    code = "import sys; from ottla_broker.log.disk import OsDisk; OsDisk().lock(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "LockHeld" in refused.stderr
    close_directory(directory)
    assert subprocess.run(command, capture_output=True, text=True, check=False, env=environment).returncode == 0


def test_error_names_an_unusable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match="file"):
        open_directory(tmp_path / "file")


def test_error_names_a_checkpoint_file_that_ends_early(tmp_path: Path) -> None:
    close_directory(open_directory(tmp_path))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n")
    with pytest.raises(LogDirError, match="recovery-point-offset-checkpoint:2: no entries announced"):
        open_directory(tmp_path)


def test_start_after_a_clean_shutdown_restores_offsets_and_checkpoints(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.broker_epoch = 77
    for partition in range(3):
        log = directory.create_log("my-topic", partition, TOPIC_ID, LogConfig())
        for n in range(5):
            append_committed(log, batch(2, producer=(partition, 0, 2 * n)), epoch=3)
    directory.logs["my-topic", 1].delete_records_before(4)
    close_directory(directory)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 77}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (tmp_path / name).read_text() == "0\n3\nmy-topic 0 10\nmy-topic 1 10\nmy-topic 2 10\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nmy-topic 1 4\n"
    assert (tmp_path / "my-topic-2/partition.metadata").read_text().startswith("version: 0\ntopic_id: ")

    again = open_directory(tmp_path)
    assert again.was_clean_shutdown and again.previous_broker_epoch == 77
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log = again.logs["my-topic", 1]
    assert (log.start, log.end, log.high_watermark, log.recovery_point, log.topic_id) == (4, 10, 10, 10, TOPIC_ID)
    assert log.epochs.entries() == [(3, 4)]
    assert append_committed(log, batch(1, producer=(1, 0, 10))) == (10, 10)
    kill_directory(again)
    after = open_directory(tmp_path)
    assert not after.was_clean_shutdown
    assert after.logs["my-topic", 1].end == 11
    # As last written to the checkpoint file.
    assert after.logs["my-topic", 1].high_watermark == 10


def test_failure_of_one_partition_prevents_the_clean_shutdown_file(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = open_directory(tmp_path, disk=disk)
    append_committed(directory.create_log("good", 0, TOPIC_ID, LogConfig()), batch(1))
    append_committed(directory.create_log("bad", 0, TOPIC_ID, LogConfig()), batch(1))
    disk.broken = {"bad-0"}
    close_directory(directory)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    disk.broken = set()
    again = open_directory(tmp_path)
    assert {key: log.end for key, log in again.logs.items()} == {("bad", 0): 1, ("good", 0): 1}


def test_partition_that_failed_before_the_stop_prevents_the_clean_shutdown_file(tmp_path: Path) -> None:
    """What a failed fsync has lost may look intact until the page cache is gone."""
    disk = FailingDisk()
    directory = open_directory(tmp_path, disk=disk)
    log = directory.create_log("bad", 0, TOPIC_ID, LogConfig())
    append_committed(log, batch(1))
    disk.broken = {"bad-0"}
    with pytest.raises(KafkaError):
        asyncio.run(log.wait_until_synced(log.end))
    disk.broken = set()
    close_directory(directory)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert open_directory(tmp_path).logs["bad", 0].recovery_point == 0


def test_rule_13_recreated_topic_is_another_topic(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
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
    directory = open_directory(tmp_path)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    for _ in range(9):
        append_committed(log, batch(1))
    log.delete_records_before(7)
    asyncio.run(log.checkpoint())
    asyncio.run(directory.write_checkpoints(recovery_points=True))
    directory.delete_log("t", 0)
    append_committed(directory.create_log("t", 0, UUID(int=9), LogConfig()), batch(3))
    kill_directory(directory)
    again = open_directory(tmp_path).logs["t", 0]
    assert (again.start, again.end, again.high_watermark, again.recovery_point) == (0, 3, 0, 0)


def test_deleted_partitions_are_removed_in_the_background_and_after_a_crash(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for partition in range(2):
        append_committed(directory.create_log("gone", partition, TOPIC_ID, LogConfig()), batch(1))
    directory.delete_log("gone", 0)
    directory.delete_log("gone", 7)
    (folder,) = tmp_path.glob("gone-0.*-delete")
    asyncio.run(LogDirMaintenance(directory, MaintenanceIntervals()).remove_deleted_files())
    assert not folder.exists()
    directory.delete_log("gone", 1)
    kill_directory(directory)
    again = open_directory(tmp_path)
    assert again.logs == {}
    asyncio.run(LogDirMaintenance(again, MaintenanceIntervals()).remove_deleted_files())
    assert list(tmp_path.glob("gone*")) == []


def test_a_folder_that_cannot_be_removed_does_not_keep_the_others_from_removal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = open_directory(tmp_path)
    for partition in range(2):
        directory.create_log("gone", partition, TOPIC_ID, LogConfig())
        directory.delete_log("gone", partition)
    remove, disk = directory.storage.disk.remove_tree, directory.storage.disk

    def remove_tree(path: str) -> None:
        if "gone-0." in path:
            raise OSError(errno.EIO, "Input/output error", path)
        remove(path)

    disk.remove_tree = remove_tree  # type: ignore[method-assign]
    asyncio.run(LogDirMaintenance(directory, MaintenanceIntervals()).remove_deleted_files())
    assert [path.name.startswith("gone-0.") for path in tmp_path.glob("gone*")] == [True]
    assert "cannot remove" in caplog.text
    kill_directory(directory)
    again = open_directory(tmp_path)
    asyncio.run(LogDirMaintenance(again, MaintenanceIntervals()).remove_deleted_files())
    assert list(tmp_path.glob("gone*")) == []


def test_damaged_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    for partition in range(2):
        append_committed(directory.create_log("t", partition, TOPIC_ID, LogConfig()), batch(1))
    close_directory(directory)
    (tmp_path / "t-0/partition.metadata").write_text("nonsense")
    again = open_directory(tmp_path)
    assert "partition.metadata" in str(again.logs["t", 0].failure)
    assert again.logs["t", 1].failure is None
    assert append_committed(again.logs["t", 1], batch(1)) == (1, 1)


@pytest.mark.parametrize("text", ["2\n0\n", "0\n1\nno offset\n", "0\n3\nt 0 1\n"])
def test_error_names_a_damaged_checkpoint(tmp_path: Path, text: str) -> None:
    close_directory(open_directory(tmp_path))
    (tmp_path / "recovery-point-offset-checkpoint").write_text(text)
    with pytest.raises(LogDirError, match="recovery-point-offset-checkpoint"):
        open_directory(tmp_path)


def test_empty_checkpoint_file_is_accepted(tmp_path: Path) -> None:
    close_directory(open_directory(tmp_path))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("")
    close_directory(open_directory(tmp_path))
