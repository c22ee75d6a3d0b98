"""`ottla bench` on a real broker: it measures, cleans up and ends by itself."""

import json
import subprocess
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import START_MS, Message
from tests.ottla_command import run_ottla
from tests.waiting import eventually


def run_bench(broker: BrokerProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_ottla("bench", *arguments, "--bootstrap", broker.bootstrap, within_s=120)


def topics_of(broker: BrokerProcess) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics)


def test_a_new_topic_is_measured_and_deleted(broker: BrokerProcess) -> None:
    done = run_bench(broker, "--seconds", "1", "--rate", "20", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["produce"]["records"] > 0
    assert found["consume"]["records"] == found["produce"]["records"] + found["latency"]["records"]
    assert found["latency"]["records"] == 20
    for kind in ("acknowledged", "received"):
        quantiles = found["latency"][kind]
        assert 0 < quantiles["p50Ms"] <= quantiles["p95Ms"] <= quantiles["p99Ms"] <= quantiles["maxMs"]
    eventually(lambda: found["topic"] not in topics_of(broker))


def test_produce_stops_at_max_bytes_and_draws_a_plot(broker: BrokerProcess) -> None:
    done = run_bench(broker, "produce", "--seconds", "60", "--max-bytes", "1000000", "--batch-bytes", "10000")
    assert (done.returncode, done.stderr) == (0, "")
    heading, row, *rest = done.stdout.splitlines()
    assert heading.split()[:2] == ["PHASE", "RECORDS"]
    assert row.split()[:2] == ["produce", "10000"]
    assert "produce, bytes per second" in rest and any("┤" in line and "█" in line for line in rest)


def test_named_topic_is_consumed_and_not_deleted(broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, partitions=2)
    rd.produce(broker.bootstrap, name, [Message(None, b"record", START_MS)] * 7)
    done = run_bench(broker, "consume", "--topic", name, "-o", "json")
    assert json.loads(done.stdout)["consume"]["records"] == 7
    assert name in topics_of(broker)


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("fly",), 2, "there is no phase 'fly'; allowed: produce, latency, consume"),
        (("consume",), 2, "a new topic has nothing to consume: add the phase produce, or --topic"),
        (("--topic", "missing"), 3, "there is no topic 'missing'"),
    ],
)
def test_invalid_measurements_are_refused(
    broker: BrokerProcess, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    done = run_bench(broker, *arguments)
    assert done.returncode == code and problem in done.stderr
