"""Restarts of a broker, and partition folders that are not in the metadata."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.broker import Broker
from ottla_broker.broker_bootstrap import BrokerBootstrap
from ottla_broker.config import MAX_CONNECTIONS
from ottla_broker.log.config import LogConfig
from ottla_broker.metadata.image import BROKER_RESOURCE
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.raft_quorum import RaftQuorum
from ottla_broker.metadata.records import Endpoint
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.log_dirs import open_log_dir
from tests.unit.async_tests import async_test
from tests.unit.broker_without_sockets import readable_values, run_broker
from tests.unit.topic_creation import create_topic

BATCH = encode_batch([Record(1, b"k", b"v")])


def test_topics_configs_records_and_ids_survive_a_restart(tmp_path: Path) -> None:
    async def first() -> object:
        async with run_broker(tmp_path) as broker:
            await create_topic(broker.active_controller(), NewTopic("t", 2, 1, config={"retention.ms": "77"}))
            broker.partitions.leader("t", 1).append_records(BATCH, acks=-1)
            return state_to_keep(broker)

    async def second() -> object:
        async with run_broker(tmp_path) as broker:
            assert broker.partitions.leader("t", 1).log.config.retention_ms == 77
            assert readable_values(broker, "t", 1) == [b"v"]
            assert broker.image.topics["t"].partitions[1].leader_epoch > 0  # a new incarnation has a new epoch
            return state_to_keep(broker)

    def state_to_keep(broker: Broker) -> object:
        topic = broker.image.topics["t"]
        return broker.cluster_id, topic.id, [(p.leader, p.isr, p.directories) for p in topic.partitions.values()]

    assert asyncio.run(first()) == asyncio.run(second())


def test_broker_epoch_increases_with_every_start(tmp_path: Path) -> None:
    async def epoch() -> int:
        async with run_broker(tmp_path) as broker:
            return broker.image.brokers[broker.node_id].epoch

    epochs = [asyncio.run(epoch()) for _ in range(3)]
    assert epochs == sorted(set(epochs))


@async_test
async def test_partition_folders_at_the_first_start_become_topics(tmp_path: Path) -> None:
    directory = open_log_dir(tmp_path)
    topic_id = Runtime().new_uuid()
    for partition in (0, 2):  # partition 1 is missing
        directory.create_log("moved", partition, topic_id, LogConfig()).append_as_leader(
            BATCH, leader_epoch=4, now_ms=1
        )
    await directory.close()
    async with run_broker(tmp_path) as broker:
        topic = broker.image.topics["moved"]
        assert topic.id == topic_id
        assert sorted(topic.partitions) == [0, 2]
        assert topic.partitions[0].leader_epoch == 5  # newer than the epochs in the folder
        assert readable_values(broker, "moved", 2) == [b"v"]


def test_adopted_folder_with_offset_gaps_of_compaction_is_complete(tmp_path: Path) -> None:
    """Compaction of Apache Kafka leaves gaps between segments. After a kill they are distinguished
    from a loss only by the topic's configs.
    """
    directory = open_log_dir(tmp_path)
    log = directory.create_log("kept", 0, Runtime().new_uuid(), LogConfig())
    log.append_as_leader(BATCH, leader_epoch=0, now_ms=1)
    log.roll()
    log.append_as_follower(encode_batch([Record(2, b"k", b"w")], base_offset=10, leader_epoch=0), leader_epoch=0)
    asyncio.run(directory.close())
    for file in tmp_path.glob("kept-0/00000000000000000001.*"):
        file.rename(file.with_name(file.name.replace("01.", "10.")))
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()

    async def run() -> None:
        async with run_broker(tmp_path) as broker:
            assert readable_values(broker, "kept", 0) == [b"v"]
            assert broker.partitions.leader("kept", 0).log.end == 11

    asyncio.run(run())
    (tmp_path / ".kafka_cleanshutdown").unlink()
    asyncio.run(run())


def test_folder_of_an_unknown_topic_is_renamed_and_kept(tmp_path: Path) -> None:
    async def start_once() -> None:
        async with run_broker(tmp_path) as broker:
            await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
            broker.partitions.leader("t", 0).append_records(BATCH, acks=-1)

    async def start_with_unknown_folder() -> None:
        async with run_broker(tmp_path) as broker:
            assert sorted(broker.image.topics) == ["t"]

    asyncio.run(start_once())
    shutil.copytree(tmp_path / "t-0", tmp_path / "unknown-0")
    asyncio.run(start_with_unknown_folder())
    (stray,) = tmp_path.glob("unknown-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size == len(BATCH)


def test_rule_13_folder_of_a_deleted_topic_is_not_used_for_a_topic_of_the_same_name(tmp_path: Path) -> None:
    async def create(recreate: bool) -> None:
        async with run_broker(tmp_path) as broker:
            if recreate:
                await broker.active_controller().delete_topic("t")
            await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
            if not recreate:
                broker.partitions.leader("t", 0).append_records(BATCH, acks=-1)

    async def read() -> None:
        async with run_broker(tmp_path) as broker:
            assert readable_values(broker, "t", 0) == []

    asyncio.run(create(recreate=False))
    old = tmp_path.parent / "old"
    shutil.copytree(tmp_path / "t-0", old)
    asyncio.run(create(recreate=True))
    shutil.rmtree(tmp_path / "t-0")
    shutil.copytree(old, tmp_path / "t-0")  # as after a restore from a backup
    asyncio.run(read())
    assert list(tmp_path.glob("t-0.*-stray"))


@async_test
async def test_rule_13_recreated_topic_has_another_id(tmp_path: Path) -> None:
    async with run_broker(tmp_path) as broker:
        old = await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        await broker.active_controller().delete_topic("t")
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        with pytest.raises(KafkaError) as raised:
            broker.partitions.leader("t", 0, topic_id=old)
        assert raised.value.code is ErrorCode.inconsistent_topic_id
        with pytest.raises(KafkaError) as raised:
            broker.partitions.topic_name(old)
        assert raised.value.code is ErrorCode.unknown_topic_id


def test_unknown_records_in_the_metadata_log_are_an_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with run_broker(tmp_path):
            pass

    asyncio.run(run())
    directory = open_log_dir(tmp_path)
    directory.logs["__cluster_metadata", 0].append_as_leader(BATCH, leader_epoch=9, now_ms=1, from_client=False)
    asyncio.run(directory.close())
    with pytest.raises(KafkaError, match="not a metadata record that this version knows"):
        asyncio.run(run())


@async_test
async def test_change_that_cannot_be_committed_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.kafka_storage_error, "the disk is full")

    async with run_broker(tmp_path) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(RaftQuorum, "commit", refuse)
            with pytest.raises(KafkaError, match="the disk is full"):
                await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        assert broker.image.topics == {}
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        assert "t" in broker.image.topics


@async_test
async def test_failed_start_creates_no_clean_shutdown_file(tmp_path: Path) -> None:
    """With the file, the next start would not check the tails of the logs."""

    async def run() -> None:
        async with run_broker(tmp_path) as broker:
            await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
            broker.partitions.leader("t", 0).append_records(BATCH, acks=-1)

    await run()
    marker = tmp_path / ".kafka_cleanshutdown"
    points = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert "t 0 1" in points
    state = tmp_path / "__cluster_metadata-0" / "quorum-state"
    original_text = state.read_text()
    voters = [{"broker": broker, "directory": str(UUID(int=broker))} for broker in (1, 2)]
    state.write_text(json.dumps({"epoch": 1, "isr": voters}))
    for was_clean in (True, False):
        if not was_clean:
            marker.unlink()
        with pytest.raises(KafkaError, match="elected through a register"):
            await run()
        assert marker.exists() is was_clean
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == points
    state.write_text(original_text)
    async with run_broker(tmp_path) as broker:
        assert readable_values(broker, "t", 0) == [b"v"]


@async_test
async def test_configs_that_change_during_a_start_are_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configs change after the logs were loaded and before the broker is registered."""
    register = BrokerBootstrap.register

    async def change_and_register(
        bootstrap: BrokerBootstrap, cluster_id: str, endpoints: Mapping[str, Endpoint]
    ) -> None:
        await bootstrap._active_controller().alter_configs(BROKER_RESOURCE, "", {"max.connections": "7"})
        await register(bootstrap, cluster_id, endpoints)

    async with run_broker(tmp_path):
        pass
    monkeypatch.setattr(BrokerBootstrap, "register", change_and_register)
    async with run_broker(tmp_path) as broker:
        assert broker.config(MAX_CONNECTIONS) == 7


def test_the_only_broker_of_a_cluster_with_a_register_founds_a_quorum_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ottla 0.1 had no voters in the metadata log, and kept the register's value in
    quorum-state.
    """

    async def first() -> tuple[str, UUID]:
        with monkeypatch.context() as patch:
            patch.setattr(MetadataLog, "append_voters", lambda log, *_: log.end_offset)
            async with run_broker(tmp_path) as broker:
                await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
                return broker.cluster_id, broker.log_dirs[0].directory_id

    cluster_id, directory = asyncio.run(first())
    state = tmp_path / "__cluster_metadata-0" / "quorum-state"
    epoch = json.loads(state.read_text())["leaderEpoch"]
    voter = {"broker": 1, "directory": str(directory), "address": "somewhere:9092"}
    state.write_text(json.dumps({"cluster_id": cluster_id, "epoch": epoch, "leader": 1, "isr": [voter]}))

    async def second() -> None:
        async with run_broker(tmp_path) as broker:
            assert broker.cluster_id == cluster_id and "t" in broker.image.topics
            assert broker.quorum.epoch == epoch + 1
            log = broker.quorum.metadata_log
            assert [voter.key for voter in log.voters.at(log.high_watermark)] == [(1, directory)]
            assert log.voters.latest_offset >= 0

    asyncio.run(second())
    assert "data_version" in state.read_text()
