"""Kafka Streams: a word count with `at_least_once` and `exactly_once_v2`, a repartition topic and a
changelog topic, in the classic protocol and in the streams protocol (KIP-1071).

The application is built from Python (py4j, which PySpark includes) in its own JVM, so no Java is
compiled.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import Message
from tests.jars import QUIET, SHORT_LIVED_JVM, STREAMS, java_program, kafka_classpath
from tests.waiting import eventually

PARTITIONS = 3
CLASSIC = {
    "session.timeout.ms": "3000",  # Streams does not leave the group when it closes: a restart waits for this
    "heartbeat.interval.ms": "500",
}
LINES = ("the hen and the egg", "the egg", "a hen", "and the hen and")


class Words:
    """A `ValueMapper` from a line to its words."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._array_list = gateway.jvm.java.util.ArrayList

    def apply(self, line: str) -> Any:
        words = self._array_list()
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


@pytest.fixture
def gateway() -> Iterator[JavaGateway]:
    port, jvm = launch_gateway(
        classpath=kafka_classpath(coordinates=STREAMS),
        javaopts=[*SHORT_LIVED_JVM, *QUIET],
        java_path=java_program(),
        die_on_exit=True,
        return_proc=True,
    )
    opened = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True),
        callback_server_parameters=CallbackServerParameters(port=0),
    )
    java_side = opened.java_gateway_server
    our_port = opened.get_callback_server().get_listening_port()
    java_side.resetCallbackClient(java_side.getCallbackClient().getAddress(), our_port)
    try:
        yield opened
    finally:
        opened.shutdown()
        jvm.kill()
        jvm.wait()


@contextmanager
def run_word_count(
    gateway: JavaGateway, broker: BrokerProcess, name: str, state: Path, guarantee: str, protocol: str = "classic"
) -> Iterator[None]:
    """Run the application: from lines in topic `name` to counts in `name`-counts."""
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
        "commit.interval.ms": "100",
        "processing.guarantee": guarantee,
        "num.stream.threads": "2",
        "group.protocol": protocol,
        **(CLASSIC if protocol == "classic" else {}),
    }.items():
        properties.put(key, value)
    application = streams.KafkaStreams(builder.build(), properties)
    application.start()
    try:
        yield
    finally:
        application.close()


def counts(broker: BrokerProcess, name: str) -> Counter[str]:
    """The last count of each word."""
    found: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        for message in rd.consume(
            broker.bootstrap, f"{name}-counts", partition=partition, isolation_level="read_committed"
        ):
            found[(message.key() or b"").decode()] = int.from_bytes(message.value() or b"")
    return found


@pytest.fixture(scope="module")
def streams_broker(new_broker: NewBroker) -> Iterator[BrokerProcess]:
    """A broker with short heartbeats in the streams protocol."""
    with new_broker(
        num_partitions=1,
        group_streams_min_heartbeat_interval_ms=200,
        group_streams_heartbeat_interval_ms=200,
        group_streams_initial_rebalance_delay_ms=0,
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        yield broker


@pytest.mark.parametrize(
    ("guarantee", "protocol"),
    [("at_least_once", "classic"), ("exactly_once_v2", "classic"), ("exactly_once_v2", "streams")],
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
            lines = [Message(None, line.encode(), round(time.time() * 1000)) for line in LINES * 10]
            rd.produce(broker.bootstrap, name, lines, partition=partition)
            wanted.update(" ".join(LINES * 10).split())
        with run_word_count(gateway, broker, name, tmp_path / start, guarantee, protocol):
            eventually(
                lambda: counts(broker, name) == wanted,
                within_s=60,
                message=lambda: f"{wanted}; counted: {counts(broker, name)}",
            )
    topics = rd.admin_client(broker.bootstrap).list_topics(timeout=20).topics
    store = f"{name}-KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert {f"{store}-changelog", f"{store}-repartition"} <= set(topics)
