"""Kafka's command-line tools (the Java client). Each test is a whole session of calls."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import COMPRESSIONS
from tests.jars import java_command
from tests.tools_jvm import run_tool
from tests.waiting import eventually

Tool = Callable[..., str]
TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def tool(broker: BrokerProcess, classpath: str) -> Tool:
    """`tool("TopicCommand", "--list")` returns the tool's output."""

    def run(main: str, *arguments: str, stdin: str = "", fails: bool = False, bootstrap: bool = True) -> str:
        where = ["--bootstrap-server", broker.bootstrap] if bootstrap else []
        name = main if main.startswith("kafka.") else f"{TOOLS}.{main}"
        done = run_tool(classpath, name, *where, *arguments, stdin=stdin)
        output = f"{main} {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert bool(done.returncode) == fails, output
        return done.stdout + done.stderr if fails else done.stdout

    return run


def test_topics_and_their_configs_are_created_altered_described_and_deleted(tool: Tool, name: str) -> None:
    assert "Created topic" in tool(
        "TopicCommand", "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=777000"
    )
    assert "already exists" in tool("TopicCommand", "--create", "--topic", name, fails=True)
    assert name in tool("TopicCommand", "--list").split()
    tool("TopicCommand", "--alter", "--topic", name, "--partitions", "4")
    described = tool("TopicCommand", "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 1\s+Configs: .*retention.ms=777000", described)
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 4
    entity = ("--entity-type", "topics", "--entity-name", name)
    tool(
        "kafka.admin.ConfigCommand",
        *entity,
        "--alter",
        "--add-config",
        "segment.bytes=1048576,cleanup.policy=[compact,delete]",
    )
    tool("kafka.admin.ConfigCommand", *entity, "--alter", "--delete-config", "retention.ms")
    settings = tool("kafka.admin.ConfigCommand", *entity, "--describe")
    assert "segment.bytes=1048576" in settings
    assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete" in settings
    assert "retention.ms=777000" not in settings
    everything = tool("kafka.admin.ConfigCommand", *entity, "--describe", "--all")
    assert "max.message.bytes=1048588" in everything
    tool("TopicCommand", "--delete", "--topic", name)
    assert name not in tool("TopicCommand", "--list").split()


def test_broker_configs_are_set_and_removed(tool: Tool) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    tool("kafka.admin.ConfigCommand", *one, "--alter", "--add-config", "log.cleaner.backoff.ms=12345")
    assert "log.cleaner.backoff.ms=12345" in tool("kafka.admin.ConfigCommand", *one, "--describe")
    tool("kafka.admin.ConfigCommand", *one, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms=12345" not in tool("kafka.admin.ConfigCommand", *one, "--describe", "--all")


def test_client_quotas_are_set_and_removed(tool: Tool, name: str) -> None:
    def configure(*arguments: str) -> str:
        return tool("kafka.admin.ConfigCommand", *arguments)

    both = ("--entity-type", "users", "--entity-name", name, "--entity-type", "clients", "--entity-name", name)
    configure(*both, "--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=12.5")
    described = configure(*both, "--describe")
    assert f"Quota configs for user-principal '{name}', client-id '{name}' are" in described
    assert "producer_byte_rate=1048576.0" in described and "request_percentage=12.5" in described
    configure(*both, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
    assert "_rate" not in configure(*both, "--describe")
    default_address = ("--entity-type", "ips", "--entity-default")
    configure(*default_address, "--alter", "--add-config", "connection_creation_rate=1000000")
    assert "connection_creation_rate=1000000" in configure("--entity-type", "ips", "--describe")
    configure(*default_address, "--alter", "--delete-config", "connection_creation_rate")


def test_console_clients_transfer_records_and_tools_show_offsets_and_delete_records(
    tool: Tool, broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    rd.create_topic(broker.bootstrap, name, 2)
    lines = "".join(f"k{i}\tv{i}\n" for i in range(100))
    keyed = ("--property", "parse.key=true")
    tool("ConsoleProducer", "--topic", name, *keyed, "--compression-codec", "lz4", stdin=lines)
    shown = tool(
        "consumer.ConsoleConsumer",
        "--topic",
        name,
        "--from-beginning",
        "--max-messages",
        "100",
        "--isolation-level",
        "read_committed",
        "--property",
        "print.key=true",
    )
    assert sorted(shown.splitlines()) == sorted(lines.splitlines())

    def offsets(time: str) -> dict[int, int]:
        printed = tool("GetOffsetShell", "--topic", name, "--time", time)
        return {int(line.split(":")[1]): int(line.split(":")[2]) for line in printed.splitlines()}

    ends = offsets("latest")
    assert sum(ends.values()) == 100
    assert offsets("earliest") == {0: 0, 1: 0}
    newest = offsets("max-timestamp")
    assert all(0 <= newest[partition] < ends[partition] for partition in newest)
    wanted = {"partitions": [{"topic": name, "partition": 0, "offset": ends[0] // 2}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    assert f"low_watermark: {ends[0] // 2}" in tool(
        "DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "delete.json")
    )
    assert offsets("earliest") == {0: ends[0] // 2, 1: 0}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_performance_tools_produce_and_consume(tool: Tool, broker: BrokerProcess, name: str, compression: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    count = 20_000
    produced = tool(
        "ProducerPerformance",
        *("--topic", name, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", f"compression.type={compression}"),
        bootstrap=False,
    )
    assert f"{count} records sent" in produced
    if compression in ("none", "zstd"):
        consumed = tool("ConsumerPerformance", "--topic", name, "--messages", str(count), "--timeout", "20000")
        assert int(consumed.splitlines()[-1].split(", ")[4]) == count
    else:
        assert len(rd.consume(broker.bootstrap, name, check_crcs=True)) == count


def test_groups_are_described_reset_and_deleted(tool: Tool, broker: BrokerProcess, classpath: str, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, 3)
    produced = tool("VerifiableProducer", "--topic", name, "--max-messages", "60", "--acks", "-1")
    sent = [json.loads(line) for line in produced.splitlines()]
    assert len([event for event in sent if event["name"] == "producer_send_success"]) == 60
    command = java_command(
        classpath, f"{TOOLS}.VerifiableConsumer", "--bootstrap-server", broker.bootstrap, "--topic", name
    )
    command += ["--group-id", name, "--reset-policy", "earliest", "--verbose"]
    consumers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)
    ]
    try:
        shared = eventually(lambda: _members(tool, name), within_s=60, message="two members") or []
        assert sorted(len(part) for part in shared) == [1, 2]
        state = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", name, "--state")
        assert re.search(rf"{name}\s+127.0.0.1:{broker.port}.*\s+Stable\s+2", state)
        assert "is not empty" in tool("consumer.group.ConsumerGroupCommand", "--delete", "--group", name, fails=False)
        eventually(lambda: sum(committed for committed, _ in _commits(tool, name).values()) == 60, within_s=60)
    finally:
        for consumer in consumers:
            consumer.send_signal(signal.SIGTERM)
        received = [
            json.loads(line) for consumer in consumers for line in consumer.communicate(timeout=30)[0].splitlines()
        ]
    values = [event["value"] for event in received if event["name"] == "record_data"]
    assert sorted(values, key=int) == [str(number) for number in range(60)]
    tool(
        "consumer.group.ConsumerGroupCommand",
        "--group",
        name,
        "--reset-offsets",
        "--to-earliest",
        "--topic",
        name,
        "--execute",
    )
    assert [committed for committed, _ in _commits(tool, name).values()] == [0, 0, 0]
    assert sum(lag for _, lag in _commits(tool, name).values()) == 60
    assert name in tool("consumer.group.ConsumerGroupCommand", "--list").split()
    tool("consumer.group.ConsumerGroupCommand", "--delete-offsets", "--group", name, "--topic", f"{name}:0")
    assert sorted(_commits(tool, name)) == [1, 2]
    assert "was successful" in tool("consumer.group.ConsumerGroupCommand", "--delete", "--group", name)


def test_log_dirs_versions_and_quorum_of_a_broker_are_described(tool: Tool, broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 10))
    printed = tool("LogDirsCommand", "--describe", "--topic-list", name)
    (described,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    (folder,) = described["brokers"][0]["logDirs"]
    assert folder["logDir"] == str(broker.log_dir)
    assert folder["partitions"][0]["size"] > 0
    versions = tool("BrokerApiVersionsCommand")
    assert "127.0.0.1" in versions
    for api in ("Produce(0)", "Fetch(1)", "JoinGroup(11)", "InitProducerId(22)", "DescribeTopicPartitions(75)"):
        assert re.search(rf"{re.escape(api)}: .*\[usable: \d+\]", versions), f"{api} is not usable by the Java client"
    quorum = tool("MetadataQuorumCommand", "describe", "--replication", "--human-readable")
    assert re.search(r"^1\s.*\s\d+ ms ago\s+\d+ ms ago\s+Leader", quorum, re.MULTILINE), quorum
    level = r"4\.1-IV1"
    feature = (
        rf"^Feature: metadata.version\s.*SupportedMaxVersion: {level}\s+FinalizedVersionLevel: {level}\s+Epoch: \d+"
    )
    features = tool("FeatureCommand", "describe")
    assert re.search(feature, features, re.MULTILINE)
    assert re.search(r"^Feature: kraft.version\s.*MaxVersion: 1\s+FinalizedVersionLevel: 1\s", features, re.MULTILINE)
    assert "Cluster ID: " in tool("ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap, bootstrap=False)


def test_transactions_are_listed_described_and_ended(tool: Tool, broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name)
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush(10)

    listed = [line.split() for line in tool("TransactionsCommand", "list").splitlines() if line.startswith(name)]
    assert [(id_, state) for id_, _, _, state in listed] == [(name, "Ongoing")]
    described = tool("TransactionsCommand", "describe", "--transactional-id", name)
    assert f"{name}-0" in described and "Ongoing" in described
    producers = tool("TransactionsCommand", "describe-producers", "--topic", name, "--partition", "0")
    assert producers.splitlines()[-1].split()[-1] == "0", "the open transaction begins at offset 0"

    tool("TransactionsCommand", "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    assert eventually(lambda: rd.consume(broker.bootstrap, name, isolation_level="read_committed") == [])
    rd.produce(broker.bootstrap, name, rd.numbered_messages(0, 1))
    assert len(rd.consume(broker.bootstrap, name, isolation_level="read_committed")) == 1

    decoded = "".join(
        tool("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(log), bootstrap=False)
        for log in sorted(broker.log_dir.glob("__transaction_state-*/*.log"))
        if log.stat().st_size
    )
    assert name in decoded and '"transactionStatus":1' in decoded, decoded


def test_transaction_version_is_lowered_and_raised(tool: Tool) -> None:
    def level() -> str:
        (line,) = (each for each in tool("FeatureCommand", "describe").splitlines() if "transaction.version" in each)
        return line.split("FinalizedVersionLevel:")[1].split()[0]

    assert level() == "2"
    tool("FeatureCommand", "downgrade", "--feature", "transaction.version=1")
    assert level() == "1"
    tool("FeatureCommand", "upgrade", "--feature", "transaction.version=2")
    assert level() == "2"


def _members(tool: Tool, group: str) -> list[list[int]] | None:
    """The partitions of each of two members; None until both have some, and together all three."""
    printed = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--members", "--verbose")
    found = [re.search(rf"\s{group}:([\d,]+)", line) for line in printed.splitlines()]
    owned = [[int(number) for number in one.group(1).split(",")] for one in found if one]
    return owned if len(owned) == 2 and sum(map(len, owned)) == 3 else None


def _commits(tool: Tool, group: str) -> dict[int, tuple[int, int]]:
    """(committed offset, lag in records) of each partition with a committed offset."""
    printed = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    rows = [line.split() for line in printed.splitlines() if line.startswith(group)]
    return {int(row[2]): (int(row[3]), int(row[5])) for row in rows if row[3] != "-"}
