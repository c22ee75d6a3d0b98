"""Kafka Streams 4.2: a word count with `at_least_once` and `exactly_once_v2`, a repartition topic
and a changelog topic, in the classic protocol and in the streams protocol (KIP-1071). Kills of the
application or of the broker change no count.

The application is built from Python (py4j, which PySpark includes) in its own JVM, so no Java is
compiled.
"""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import OffsetSpec
from py4j.java_gateway import CallbackServerParameters, JavaGateway

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import Message
from tests.jars import KAFKA_4_2, STREAMS, kafka_classpath
from tests.java_gateway import start_jvm
from tests.ottla_command import run_ottla
from tests.tools_jvm import check_tool
from tests.waiting import eventually

PARTITIONS = 3
CLASSIC = {
    "session.timeout.ms": "3000",  # Streams does not leave the group when it closes: a restart waits for this
    "heartbeat.interval.ms": "500",
}
KILLS = 3
LINES = ("the hen and the egg", "the egg", "a hen", "and the hen and")


class Words:
    """A `ValueMapper` from a line to its words.

    The lists are kept: py4j tells Java to drop a list as soon as Python collects it, which may be
    before Java has received it.
    """

    def __init__(self, gateway: JavaGateway) -> None:
        self._array_list = gateway.jvm.java.util.ArrayList
        self._kept: list[Any] = []

    def apply(self, line: str) -> Any:
        words = self._array_list()
        self._kept.append(words)
        for word in line.split():
            words.add(word)
        return words

    class Java:
        implements = ("org.apache.kafka.streams.kstream.ValueMapper",)


class ByWord:
    """A `KeyValueMapper` that makes the word the key, so that records are partitioned by word."""

    def apply(self, _: str | None, word: str) -> str:
        return word

    class Java:
        implements = ("org.apache.kafka.streams.kstream.KeyValueMapper",)


def streams_jvm() -> AbstractContextManager[tuple[JavaGateway, "subprocess.Popen[bytes]"]]:
    return start_jvm(kafka_classpath(KAFKA_4_2, STREAMS), callbacks=CallbackServerParameters(port=0))


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    """A JVM for all applications that are not killed: each is closed by its test."""
    with streams_jvm() as (opened, _):
        yield opened


@contextmanager
def run_word_count(
    gateway: JavaGateway, broker: BrokerProcess, name: str, state: Path, guarantee: str, protocol: str
) -> Iterator[Callable[[], str]]:
    """Runs the application until the end of the block. Yields a function that returns its state."""
    application = start_word_count(gateway, broker, name, state, guarantee, protocol)
    try:
        yield lambda: str(application.state())
    finally:
        application.close()


def start_word_count(
    gateway: JavaGateway,
    broker: BrokerProcess,
    name: str,
    state: Path,
    guarantee: str,
    protocol: str,
    commit_interval_ms: int = 100,
) -> Any:
    """Starts the application: from lines in topic `name` to counts in `name`-counts."""
    streams = gateway.jvm.org.apache.kafka.streams
    serdes = gateway.jvm.org.apache.kafka.common.serialization.Serdes
    builder = streams.StreamsBuilder()
    words = builder.stream(name).flatMapValues(Words(gateway)).groupBy(ByWord())
    words.count().toStream().to(f"{name}-counts", streams.kstream.Produced.valueSerde(serdes.Long()))
    text = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    properties = gateway.jvm.java.util.Properties()
    for key, value in {
        "application.id": name,
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(state),
        "default.key.serde": text,
        "default.value.serde": text,
        "commit.interval.ms": str(commit_interval_ms),
        "processing.guarantee": guarantee,
        "num.stream.threads": "2",
        "statestore.cache.max.bytes": "0",  # counts are written at once, not only before a commit
        "group.protocol": protocol,
        **(CLASSIC if protocol == "classic" else {}),
    }.items():
        properties.put(key, value)
    application = streams.KafkaStreams(builder.build(), properties)
    application.start()
    return application


def run_tool(classpath: str, broker: BrokerProcess, main: str, *arguments: str) -> str:
    return check_tool(classpath, main, "--bootstrap-server", broker.bootstrap, *arguments)


def describe_group(broker: BrokerProcess, name: str) -> dict[str, Any]:
    output = run_ottla("groups", "describe", name, "-o", "json", "--bootstrap", broker.bootstrap)
    output.check_returncode()
    found: dict[str, Any] = json.loads(output.stdout)
    return found


def is_settled(group: dict[str, Any]) -> bool:
    return (group["kind"], group["state"], group["members"], group["lag"]) == ("streams", "Stable", 2, 0)


def decode_offsets(classpath: str, broker: BrokerProcess) -> str:
    """The records of `__consumer_offsets` as Kafka's tool decodes them."""
    logs = ",".join(str(it) for it in broker.log_dir.glob("__consumer_offsets-*/*.log") if it.stat().st_size)
    return check_tool(classpath, "kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", logs)


def counts(broker: BrokerProcess, name: str) -> Counter[str]:
    """The last count of each word."""
    found: Counter[str] = Counter()
    for word, count in read_counts(broker, name, "read_committed"):
        found[word] = count
    return found


def read_counts(broker: BrokerProcess, name: str, isolation: str) -> list[tuple[str, int]]:
    """All counts up to the end that consumers of this isolation level see."""
    return [
        ((message.key() or b"").decode(), int.from_bytes(message.value() or b""))
        for partition in range(PARTITIONS)
        for message in rd.consume(broker.bootstrap, f"{name}-counts", partition=partition, isolation_level=isolation)
    ]


def has_open_transaction(broker: BrokerProcess, topic: str) -> bool:
    """True if a partition's last stable offset is before its end."""
    partitions = {ck.TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    admin = rd.admin_client(broker.bootstrap)
    stable, ends = (
        [found.result(20).offset for found in admin.list_offsets(partitions, isolation_level=level).values()]
        for level in (ck.IsolationLevel.READ_COMMITTED, ck.IsolationLevel.READ_UNCOMMITTED)
    )
    return stable != ends


def write_lines(broker: BrokerProcess, name: str, partition: int) -> Counter[str]:
    """Writes lines to topic `name`. Returns how often each word is in them."""
    lines = [Message(None, line.encode(), round(time.time() * 1000)) for line in LINES * 10]
    rd.produce(broker.bootstrap, name, lines, partition=partition)
    return Counter(" ".join(LINES * 10).split())


def wait_for_counts(broker: BrokerProcess, name: str, wanted: Counter[str], state: Callable[[], str]) -> None:
    eventually(
        lambda: counts(broker, name) == wanted,
        within_s=60,
        message=lambda: f"{wanted}; counted: {counts(broker, name)}; the application is {state()}",
    )


@pytest.fixture
def streams_broker(new_broker: NewBroker, broker_kind: str) -> Iterator[BrokerProcess]:
    """A broker with short heartbeats in the streams protocol."""
    version = {"version": KAFKA_4_2} if broker_kind == "kafka" else {}
    with new_broker(
        **version,
        num_partitions=1,
        group_streams_min_heartbeat_interval_ms=200,
        group_streams_heartbeat_interval_ms=200,
        group_streams_initial_rebalance_delay_ms=0,
        group_streams_min_session_timeout_ms=3000,
        group_streams_session_timeout_ms=3000,
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        yield broker


@pytest.mark.parametrize(
    ("guarantee", "protocol"),
    [
        pytest.param("at_least_once", "classic", marks=pytest.mark.slow),
        pytest.param("exactly_once_v2", "classic", marks=pytest.mark.slow),
        ("exactly_once_v2", "streams"),
    ],
)
def test_words_are_counted_and_counts_restored_from_the_changelog(
    gateway: JavaGateway, streams_broker: BrokerProcess, name: str, tmp_path: Path, guarantee: str, protocol: str
) -> None:
    broker = streams_broker
    for topic in (name, f"{name}-counts"):
        rd.create_topic(broker.bootstrap, topic, PARTITIONS)
    wanted: Counter[str] = Counter()
    for start in ("first", "second"):  # the second one with an empty state folder
        for partition in range(PARTITIONS):
            wanted += write_lines(broker, name, partition)
        with run_word_count(gateway, broker, name, tmp_path / start, guarantee, protocol) as state:
            wait_for_counts(broker, name, wanted, state)
    topics = rd.admin_client(broker.bootstrap).list_topics(timeout=20).topics
    store = f"{name}-KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert {f"{store}-changelog", f"{store}-repartition"} <= set(topics)


def shows_members(shown: str, broker: BrokerProcess, name: str) -> bool:
    assignments = describe_group(broker, name)["assignments"]
    return bool(assignments) and all(member["member"] in shown for member in assignments)


def test_a_streams_group_is_shown_by_kafkas_tool_and_by_ottla_groups(
    gateway: JavaGateway, streams_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    broker, classpath = streams_broker, kafka_classpath(KAFKA_4_2)
    for topic in (name, f"{name}-counts"):
        rd.create_topic(broker.bootstrap, topic, PARTITIONS)
    rd.produce(broker.bootstrap, name, [Message(None, b"the hen", round(time.time() * 1000))], partition=0)
    group_tool, config_tool = "org.apache.kafka.tools.streams.StreamsGroupCommand", "kafka.admin.ConfigCommand"
    with run_word_count(gateway, broker, name, tmp_path / "state", "exactly_once_v2", "streams"):
        eventually(lambda: counts(broker, name) == {"the": 1, "hen": 1}, within_s=60)
        eventually(
            lambda: is_settled(describe_group(broker, name)), message=lambda: f"settled: {describe_group(broker, name)}"
        )
        group = describe_group(broker, name)
        read = sorted(partition for member in group["assignments"] for partition in member["partitions"])
        repartition = f"{name}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"
        assert read == sorted(f"{topic}-{it}" for topic in (name, repartition) for it in range(PARTITIONS))
        members = ("--describe", "--group", name, "--members", "--verbose")
        eventually(lambda: shows_members(run_tool(classpath, broker, group_tool, *members), broker, name), within_s=90)
    assert name in run_tool(classpath, broker, group_tool, "--list").split()
    decoded = decode_offsets(classpath, broker)
    for record_type in (17, 19, 20, 21, 22, 23):
        assert f'"type":"{record_type}","data":{{"groupId":"{name}"' in decoded, f"{record_type}: {decoded}"
    assert f'"sourceTopics":["{name}"]' in decoded and '"activeTasks":[{"subtopologyId":"0"' in decoded, decoded
    entity = ("--entity-type", "groups", "--entity-name", name)
    run_tool(classpath, broker, config_tool, "--alter", *entity, "--add-config", "streams.num.standby.replicas=1")
    assert "streams.num.standby.replicas=1" in run_tool(classpath, broker, config_tool, "--describe", *entity)
    run_tool(classpath, broker, group_tool, "--delete", "--group", name)
    assert name not in run_tool(classpath, broker, group_tool, "--list").split()


def test_a_streams_group_survives_a_kill_of_its_coordinator(
    gateway: JavaGateway, streams_broker: BrokerProcess, name: str, tmp_path: Path
) -> None:
    broker = streams_broker
    for topic in (name, f"{name}-counts"):
        rd.create_topic(broker.bootstrap, topic, PARTITIONS)
    with run_word_count(gateway, broker, name, tmp_path / "state", "exactly_once_v2", "streams") as state:
        wanted = write_lines(broker, name, 0)
        wait_for_counts(broker, name, wanted, state)
        broker.kill()
        broker.start()
        for partition in range(PARTITIONS):
            wanted += write_lines(broker, name, partition)
        wait_for_counts(broker, name, wanted, state)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_counts_are_exact_after_kills_of_the_application(
    streams_broker: BrokerProcess, name: str, tmp_path: Path, protocol: str
) -> None:
    """Each kill finds a transaction open."""
    broker, guarantee = streams_broker, "exactly_once_v2"
    for topic in (name, f"{name}-counts"):
        rd.create_topic(broker.bootstrap, topic, PARTITIONS)
    wanted: Counter[str] = Counter()

    def write_lines_and_find_open_transaction() -> bool:
        """More lines are needed: after a pause the application commits at once, and later at its
        interval.
        """
        for partition in range(PARTITIONS):
            wanted.update(write_lines(broker, name, partition))
        return has_open_transaction(broker, f"{name}-counts")

    for _ in range(KILLS):
        with streams_jvm() as (gateway, jvm):
            application = start_word_count(gateway, broker, name, tmp_path, guarantee, protocol, 2000)
            wait_for_counts(broker, name, wanted, application.state)
            eventually(write_lines_and_find_open_transaction, within_s=60)
            jvm.kill()
    with streams_jvm() as (gateway, _), run_word_count(gateway, broker, name, tmp_path, guarantee, protocol) as state:
        wait_for_counts(broker, name, wanted, state)
    committed_count = len(read_counts(broker, name, "read_committed"))
    assert len(read_counts(broker, name, "read_uncommitted")) > committed_count, "no kill interrupted a transaction"
