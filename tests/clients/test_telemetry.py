"""Clients' own metrics (KIP-714): librdkafka and the Java clients push them by default."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import urlopen

import confluent_kafka as ck
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.jars import java_command
from tests.ports import free_port
from tests.tools_jvm import check_tool
from tests.waiting import eventually

INTERVAL_MS = 200
TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True)
class TelemetryBroker:
    """A broker whose clients push their metrics."""

    broker: BrokerProcess
    metrics_url: str

    def metrics_of(self, client_id: str) -> set[str]:
        """Names of the metrics that a client has pushed."""
        with urlopen(self.metrics_url) as response:
            text = response.read().decode()
        return {
            sample.name
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("client_id") == client_id and "client_instance_id" in sample.labels
        }


@pytest.fixture(scope="module")
def telemetry_broker(broker_kind: str, new_broker: NewBroker) -> Iterator[TelemetryBroker]:
    if broker_kind == "kafka":
        pytest.skip("Kafka collects clients' metrics with a plugin only")
    port = free_port()
    with new_broker(http_listener=f"127.0.0.1:{port}") as broker:
        yield TelemetryBroker(broker, f"http://127.0.0.1:{port}/metrics")


def run_tool(telemetry_broker: TelemetryBroker, classpath: str, main: str, *arguments: str) -> str:
    at = ("--bootstrap-server", telemetry_broker.broker.bootstrap)
    return check_tool(classpath, f"{TOOLS}.{main}", *at, *arguments)


def test_clients_push_what_a_subscription_of_kafkas_tool_asks_for(
    telemetry_broker: TelemetryBroker, newest_classpath: str, name: str
) -> None:
    rd.create_topic(telemetry_broker.broker.bootstrap, name, 1)
    subscription = ("--name", name, "--metrics", "org.apache.kafka.", "--interval", str(INTERVAL_MS))
    run_tool(telemetry_broker, newest_classpath, "ClientMetricsCommand", "--alter", *subscription)
    assert name in run_tool(telemetry_broker, newest_classpath, "ClientMetricsCommand", "--list").split()
    described = run_tool(telemetry_broker, newest_classpath, "ClientMetricsCommand", "--describe", "--name", name)
    assert f"interval.ms={INTERVAL_MS}" in described and "metrics=org.apache.kafka." in described

    producer = ck.Producer({"bootstrap.servers": telemetry_broker.broker.bootstrap, "client.id": "native"})
    producer.produce(name, b"x")
    producer.flush(30)
    connected = "org_apache_kafka_producer_connection_creation_total"
    eventually(
        lambda: connected in telemetry_broker.metrics_of("native"),
        message=lambda: f"{connected} in {telemetry_broker.metrics_of('native')}",
    )

    java = java_command(
        *(newest_classpath, f"{TOOLS}.ConsoleProducer", "--bootstrap-server", telemetry_broker.broker.bootstrap),
        *("--topic", name, "--command-property", "client.id=java"),
    )
    with subprocess.Popen(java, stdin=subprocess.PIPE) as console:
        assert console.stdin is not None
        console.stdin.write(b"x\n")
        console.stdin.flush()
        eventually(
            lambda: connected in telemetry_broker.metrics_of("java"),
            message=lambda: f"{connected} in {telemetry_broker.metrics_of('java')}",
        )
        console.stdin.close()
        assert console.wait(timeout=60) == 0

    run_tool(telemetry_broker, newest_classpath, "ClientMetricsCommand", "--delete", "--name", name)
    assert name not in run_tool(telemetry_broker, newest_classpath, "ClientMetricsCommand", "--list").split()
    eventually(
        lambda: not telemetry_broker.metrics_of("native"),
        message=lambda: f"no metrics any more, not {telemetry_broker.metrics_of('native')}",
    )
