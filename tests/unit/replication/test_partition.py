"""A partition of a single broker: acks, fsync, leader epochs and waiting readers."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from ottla_broker.log.disk import OsDisk, OsFile
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.replication.partition import ALL_REPLICAS
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.async_tests import async_test
from tests.unit.broker_without_sockets import run_broker
from tests.unit.topic_creation import create_topic

BATCH = encode_batch([Record(1, None, b"v")])


class BlockingFile(OsFile):
    """A file whose fsync waits for the disk's gate and is recorded."""

    def __init__(self, path: str, disk: "BlockingDisk") -> None:
        super().__init__(path, os.open(path, os.O_RDWR))
        self._disk = disk

    def sync(self) -> None:
        self._disk.gate.wait(20)
        self._disk.syncs.append(self.path)
        super().sync()


class BlockingDisk(OsDisk):
    """Delays the fsyncs of topic `t`'s log until the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.syncs: list[str] = []

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        file = super().open(path, create=create, read_only=read_only)
        if "/t-0/" not in path or not path.endswith(".log"):
            return file
        file.close()
        return BlockingFile(path, self)


@async_test
async def test_rule_17_records_are_acknowledged_without_fsync(tmp_path: Path) -> None:
    disk = BlockingDisk()
    async with run_broker(tmp_path, disk=disk) as broker:
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        disk.syncs.clear()
        partition = broker.partitions.leader("t", 0)
        assert partition.commit_future(partition.append_records(BATCH, acks=ALL_REPLICAS)) is None
        assert partition.readable_end(0) == 1
        assert disk.syncs == []


@async_test
async def test_rule_17_with_flush_messages_1_acks_and_readers_wait_for_a_shared_fsync(tmp_path: Path) -> None:
    disk = BlockingDisk()
    async with run_broker(tmp_path, disk=disk) as broker:
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1, config={"flush.messages": "1"}))
        partition = broker.partitions.leader("t", 0)
        disk.gate.clear()
        disk.syncs.clear()
        futures = [partition.commit_future(partition.append_records(BATCH, acks=ALL_REPLICAS)) for _ in range(50)]
        await asyncio.sleep(0)
        assert all(future is not None for future in futures)
        assert partition.readable_end(0) == 0
        disk.gate.set()
        await asyncio.gather(*(future for future in futures if future is not None))
        assert partition.readable_end(0) == 50
        assert len(disk.syncs) <= 2  # the running one, and one for all later appends


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(99, ErrorCode.unknown_leader_epoch), (0, None), (-1, None), (-2, ErrorCode.fenced_leader_epoch)],
)
@async_test
async def test_rule_2_leader_epoch_of_a_request_is_checked(tmp_path: Path, epoch: int, code: ErrorCode | None) -> None:
    async with run_broker(tmp_path) as broker:
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        if code is None:
            assert broker.partitions.leader("t", 0, epoch=epoch).is_leader
            return
        with pytest.raises(KafkaError) as raised:
            broker.partitions.leader("t", 0, epoch=epoch)
        assert raised.value.code is code


@async_test
async def test_waiting_readers_are_called_on_append_and_deletion(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as broker:
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        partition = broker.partitions.leader("t", 0)
        woken: list[int] = []

        def wake() -> None:
            woken.append(partition.readable_end(0))

        partition.read_waiters.add(wake)
        partition.append_records(BATCH, acks=1)
        assert woken == [1]
        await broker.active_controller().delete_topic("t")
        assert len(woken) == 2
        partition.read_waiters.remove(wake)
        with pytest.raises(KafkaError) as raised:
            partition.append_records(BATCH, acks=1)
        assert raised.value.code is ErrorCode.unknown_topic_or_partition
