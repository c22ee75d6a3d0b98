"""Several log directories: new partitions are spread over them, and replicas move between them
while clients use them.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.errors import ErrorCode
from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.api_session import exchange
from tests.clients.conftest import NewBroker
from tests.tools_jvm import check_tool
from tests.waiting import eventually

SLOW = 50_000  # bytes per second


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@pytest.fixture
def broker(new_broker: NewBroker, folders: list[Path], broker_kind: str) -> Iterator[BrokerProcess]:
    if broker_kind == "kafka":
        pytest.skip("tests/brokers.py formats one directory of Apache Kafka")
    with new_broker(log_dirs=",".join(map(str, folders)), log_segment_bytes=1 << 20) as running:
        yield running


def send(broker: BrokerProcess, api: str, version: int, **fields: Any) -> Any:
    async def connect_and_send() -> Any:
        channel = await open_channel(broker.host, broker.port, "log dirs")
        try:
            return await exchange(channel, api, version, fields)
        finally:
            channel.close()

    return asyncio.run(connect_and_send())


def move(broker: BrokerProcess, path: object, topic: str, partition: int = 0) -> ErrorCode:
    dirs = [{"path": str(path), "topics": [{"name": topic, "partitions": [partition]}]}]
    response = send(broker, "alter_replica_log_dirs", 2, dirs=dirs)
    code: ErrorCode = response.results[0].partitions[0].error_code
    return code


def replicas(broker: BrokerProcess, topic: str) -> dict[int, dict[str, bool]]:
    """Directories of each partition: directory name → whether its replica is a future one."""
    found: dict[int, dict[str, bool]] = {}
    for directory in send(broker, "describe_log_dirs", 4, topics=None).results:
        for described in directory.topics:
            for partition in described.partitions if described.name == topic else ():
                by_folder = found.setdefault(partition.partition_index, {})
                by_folder[Path(directory.log_dir).name] = partition.is_future_key
    return found


def failed_directories(broker: BrokerProcess) -> list[str]:
    described = send(broker, "describe_log_dirs", 4, topics=None).results
    return [Path(it.log_dir).name for it in described if it.error_code is ErrorCode.kafka_storage_error]


def test_new_partitions_go_to_the_directory_with_the_fewest(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 9)
    counts = [len(list(folder.glob(f"{name}-?"))) for folder in map(Path, broker.settings["log.dirs"].split(","))]
    assert counts == [3, 3, 3]
    ids = {(folder / "meta.properties").read_text() for folder in map(Path, broker.settings["log.dirs"].split(","))}
    assert len({re.search("directory.id=(.*)", text)[1] for text in ids}) == 3  # type: ignore[index]


def test_a_replica_moves_while_it_is_written_and_read(broker: BrokerProcess, folders: list[Path], name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    [home] = replicas(broker, name)[0]
    goal = next(folder for folder in folders if folder.name != home)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 20_000))
    stop, sent = threading.Event(), [20_000]

    def keep_producing() -> None:
        while not stop.is_set():
            rd.produce(broker.bootstrap, name, rd.numbered_messages(sent[0], sent[0] + 100))
            sent[0] += 100

    producing = threading.Thread(target=keep_producing)
    producing.start()
    try:
        assert move(broker, goal, name) is ErrorCode.none
        eventually(lambda: replicas(broker, name) == {0: {goal.name: False}}, message="the replica has moved")
        sent_before_move = sent[0]
        eventually(lambda: sent[0] > sent_before_move + 200, message="records are written to the new directory")
    finally:
        stop.set()
        producing.join()
    values = [b"value %d" % number for number in range(sent[0])]
    assert rd.values_of(rd.consume(broker.bootstrap, name)) == values
    eventually(lambda: not list((folders[0].parent / home).glob(f"{name}-0")), message="the former folder is gone")
    assert (goal / f"{name}-0").is_dir()
    broker.kill()
    broker.start()
    assert rd.values_of(rd.consume(broker.bootstrap, name)) == values
    assert replicas(broker, name) == {0: {goal.name: False}}


def test_a_move_is_described_can_be_cancelled_and_continues_after_a_restart(
    broker: BrokerProcess, folders: list[Path], name: str
) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 20_000))
    [home] = replicas(broker, name)[0]
    first, second = [folder for folder in folders if folder.name != home]
    throttle(broker, SLOW)
    assert move(broker, first, name) is ErrorCode.none
    assert replicas(broker, name) == {0: {home: False, first.name: True}}
    assert move(broker, second, name) is ErrorCode.none
    assert replicas(broker, name) == {0: {home: False, second.name: True}}
    assert move(broker, folders[0].parent / home, name) is ErrorCode.none
    assert replicas(broker, name) == {0: {home: False}}
    assert move(broker, first, name) is ErrorCode.none
    broker.restart()
    assert replicas(broker, name) == {0: {home: False, first.name: True}}
    throttle(broker, 1 << 30)
    eventually(lambda: replicas(broker, name) == {0: {first.name: False}}, message="the replica has moved")
    assert len(rd.consume(broker.bootstrap, name)) == 20_000


def test_replicas_move_between_the_other_directories_while_one_has_failed(
    broker: BrokerProcess, folders: list[Path], name: str
) -> None:
    rd.create_topic(broker.bootstrap, name)
    [home] = replicas(broker, name)[0]
    failed, goal = [folder for folder in folders if folder.name != home]
    failed.rename(failed.with_suffix(".away"))
    failed.write_text("no directory")
    assert move(broker, failed, name) is ErrorCode.kafka_storage_error
    rd.create_topic(broker.bootstrap, f"{name}-more", partitions=3)  # at least one in that directory
    eventually(lambda: failed_directories(broker) == [failed.name], message="the directory has failed")
    assert move(broker, failed, name) is ErrorCode.kafka_storage_error
    assert move(broker, goal, name) is ErrorCode.none
    eventually(lambda: replicas(broker, name) == {0: {goal.name: False}}, message="the replica has moved")


def throttle(broker: BrokerProcess, bytes_per_s: int) -> None:
    change = {
        "name": "replica.alter.log.dirs.io.max.bytes.per.second",
        "config_operation": 0,
        "value": str(bytes_per_s),
    }
    resources = [{"resource_type": 4, "resource_name": "1", "configs": [change]}]
    response = send(broker, "incremental_alter_configs", 1, resources=resources, validate_only=False)
    assert response.responses[0].error_code is ErrorCode.none, response


def test_invalid_moves_get_kafkas_errors_and_a_missing_topic_is_created_where_it_was_to_move(
    broker: BrokerProcess, folders: list[Path], name: str
) -> None:
    rd.create_topic(broker.bootstrap, name)
    [home] = replicas(broker, name)[0]
    assert move(broker, folders[0].parent / "four", name) is ErrorCode.log_dir_not_found
    assert move(broker, folders[0], name, 7) is ErrorCode.unknown_topic_or_partition
    assert move(broker, folders[0].parent / home, name) is ErrorCode.none
    assert move(broker, folders[0], "x" * 240) is ErrorCode.invalid_topic_exception
    assert move(broker, folders[2], f"{name}-later") is ErrorCode.unknown_topic_or_partition
    rd.create_topic(broker.bootstrap, f"{name}-later")
    assert replicas(broker, f"{name}-later") == {0: {folders[2].name: False}}


def test_kafka_reassign_partitions_moves_a_replica_and_kafka_log_dirs_shows_it(
    broker: BrokerProcess, folders: list[Path], name: str, classpath: str, tmp_path: Path
) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 100))
    [home] = replicas(broker, name)[0]
    goal = next(folder for folder in folders if folder.name != home)
    plan = tmp_path / "plan.json"
    moved = {"topic": name, "partition": 0, "replicas": [1], "log_dirs": [str(goal)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    run_tool(
        broker, classpath, "reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(plan)
    )
    eventually(lambda: replicas(broker, name) == {0: {goal.name: False}}, message="the replica has moved")
    verified = run_tool(
        broker, classpath, "reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", str(plan)
    )
    assert re.search(f"Reassignment of replica {name}-0-1 completed successfully", verified), verified
    shown = run_tool(broker, classpath, "LogDirsCommand", "--describe", "--topic-list", name)
    [line] = [line for line in shown.splitlines() if line.startswith("{")]
    [described] = json.loads(line)["brokers"]
    assert [one["logDir"] for one in described["logDirs"] if one["partitions"]] == [str(goal)]
    assert len(described["logDirs"]) == len(folders)


def run_tool(broker: BrokerProcess, classpath: str, main: str, *arguments: str) -> str:
    return check_tool(classpath, f"org.apache.kafka.tools.{main}", "--bootstrap-server", broker.bootstrap, *arguments)


def test_a_move_ends_when_its_topic_is_deleted(broker: BrokerProcess, folders: list[Path], name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 20_000))
    [home] = replicas(broker, name)[0]
    goal = next(folder for folder in folders if folder.name != home)
    throttle(broker, SLOW)
    assert move(broker, goal, name) is ErrorCode.none
    client = rd.admin_client(broker.bootstrap)
    client.delete_topics([name], operation_timeout=10)[name].result(30)
    eventually(lambda: replicas(broker, name) == {}, message="the topic is deleted")
    assert not [path for folder in folders for path in folder.glob(f"{name}-0*-future")]
    rd.create_topic(broker.bootstrap, name)
    assert rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 1)) == [0]
