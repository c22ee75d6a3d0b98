"""Resources for tests of `ottla up`, and clients of the brokers that it starts."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.clusters import is_in_sync
from tests.e2e.up_process import UpProcess
from tests.waiting import eventually

Json = dict[str, Any]


def resource(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": "ottla.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def topic(name: str = "greetings", **spec: Any) -> Json:
    return resource("Topic", name, clusterRef={"name": "demo"}, **spec)


def admin(up: UpProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": up.bootstrap})


def count_partitions(up: UpProcess, name: str) -> int:
    topics = admin(up).list_topics(timeout=10).topics
    return len(topics[name].partitions) if name in topics else 0


def produce_values(up: UpProcess, name: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": up.bootstrap})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(30) == 0


def consume_values(up: UpProcess, name: str, count: int) -> list[str]:
    """Reads a topic from the beginning with a new consumer group, and returns at least `count`
    values, sorted.
    """
    consumer = Consumer(
        {"bootstrap.servers": up.bootstrap, "group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    values: list[str] = []
    try:
        while len(values) < count:
            for message in consumer.consume(count, timeout=30):
                assert message.error() is None
                values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return sorted(values)


def read_librdkafka_settings(folder: Path) -> dict[str, Any]:
    """The settings of librdkafka.properties in a user's folder, with paths for the names of
    files.
    """
    lines = (folder / "librdkafka.properties").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    return {key: str(folder / value) if key.endswith(".location") else value for key, value in found.items()}


def inter_broker_address(up: UpProcess, cluster: str = "demo") -> str:
    """Host and port of the first broker's listener for brokers; `login_options` are for this
    listener.
    """
    settings = json.loads((up.folder / ".ottla" / cluster / "1" / "settings.json").read_text())
    listeners: str = settings["listeners"]
    return next(it.split("://")[1] for it in listeners.split(",") if it.startswith("INTER_BROKER://"))


def login_options(up: UpProcess, cluster: str = "demo") -> tuple[str, ...]:
    """Options with which `ottla` commands log in as `ottla up` does."""
    login = up.folder / ".ottla" / cluster / "inter-broker-login" / "client.properties"
    return ("--bootstrap", inter_broker_address(up, cluster), "--command-config", str(login))


def run_json(up: UpProcess, *arguments: str) -> Json:
    """Output of an `ottla` command with `-o json`, which must succeed."""
    result = up.run_ottla(*arguments, "-o", "json")
    assert result.returncode == 0, result.stderr
    output: Json = json.loads(result.stdout)
    return output


def wait_until_in_sync(up: UpProcess, name: str, replicas: int, *, preferred: bool = True) -> list[Json]:
    """Waits until each partition of a topic has this number of replicas, all in sync, and, if
    `preferred`, is led by the first of them. Returns the partitions as the command describes them.
    """

    def partitions_in_sync() -> list[Json]:
        partitions: list[Json] = run_json(up, "topics", "describe", name)["partitions"]
        return partitions if are_in_sync(partitions, replicas, preferred=preferred) else []

    # Each command is a process, so a client waits first and the command is run at the end.
    eventually(lambda: is_in_sync(up.bootstrap, name, replicas, preferred=preferred), within_s=60)
    return eventually(partitions_in_sync, within_s=60, message=f"{name} with {replicas} replicas in sync")


def are_in_sync(partitions: Sequence[Json], replicas: int, *, preferred: bool) -> bool:
    """True if each partition, as the command describes it, has this number of replicas, all in
    sync, and, if `preferred`, is led by the first of them.
    """
    return all(
        len(it["replicas"]) == len(it["isr"]) == replicas and (not preferred or it["leader"] == it["replicas"][0])
        for it in partitions
    )


def shouting_pipeline() -> Json:
    """A Pipeline that writes the words of the topic `greetings` to the topic `shouts` in
    capitals.
    """
    return resource(
        "Pipeline",
        "shout",
        clusterRef={"name": "demo"},
        sources={"greetings": {"topic": "greetings", "format": {"type": "json", "schema": "word STRING"}}},
        transforms=[{"name": "loud", "sql": "SELECT upper(word) AS word FROM greetings"}],
        sinks=[{"from": "loud", "topic": "shouts"}],
        trigger={"interval": "200ms"},
        spark={"conf": {"spark.sql.shuffle.partitions": "1"}},
    )
