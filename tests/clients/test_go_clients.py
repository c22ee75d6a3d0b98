"""franz-go and Sarama: every codec, groups of one and of two members, and an admin client. Sarama
runs with the newest version of Kafka that it knows and with 2.1.0; franz-go also has transactions
and its client of schema registries (`sr`).

The programs (`tests/clients/go`) act and print results; the assertions are here.
"""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.clients import librdkafka as rd
from tests.go_programs import ProgramUnavailable, build_program, cache_folder
from tests.jars import skip_or_fail_in_ci
from tests.ports import free_port

SOURCE = Path(__file__).parent / "go"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
COUNT = 200
ENDS_WITHIN_S = 90
DAY_MS = "86400000"


class Client(NamedTuple):
    name: str
    version: str = ""
    """Kafka version that Sarama is configured with; the newest if it is empty."""

    def run(self, command: str, *arguments: object) -> list[Any]:
        """The program's output, one JSON value per line."""
        done = subprocess.run(
            [self._program(), command, *map(str, arguments)],
            env=os.environ | {"SARAMA_VERSION": self.version},
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _program(self) -> Path:
        try:
            return build_program(SOURCE, cache_folder(SOURCE, "go-clients", "0"), self.name, "half a minute")
        except ProgramUnavailable as reason:
            skip_or_fail_in_ci(str(reason))


CLIENTS = (Client("franz"), Client("sarama"), Client("sarama", "2.1.0"))


@pytest.fixture(params=CLIENTS, ids=lambda each: f"{each.name} {each.version}".strip())
def client(request: pytest.FixtureRequest) -> Client:
    assert isinstance(request.param, Client)
    return request.param


def test_records_of_every_codec_are_read_by_groups(client: Client, broker: BrokerProcess, name: str) -> None:
    rd.create_topic(broker.bootstrap, name, partitions=PARTITIONS)
    for codec in CODECS:
        client.run("produce", broker.bootstrap, name, codec, COUNT)
    written = sorted((f"{codec} {i}", str(i)) for codec in CODECS for i in range(COUNT))
    by_librdkafka = [each for at in range(PARTITIONS) for each in rd.consume(broker.bootstrap, name, partition=at)]
    assert sorted(((each.value() or b"").decode(), (each.key() or b"").decode()) for each in by_librdkafka) == written

    alone, together = f"alone-{name}", f"together-{name}"
    ends = read_in_group(client, broker, name, alone, member_count=1, written=written)
    with rd.open_consumer(broker.bootstrap, alone) as reader:
        committed = reader.committed([TopicPartition(name, at) for at in range(PARTITIONS)], timeout=10)
    assert [each.offset for each in committed] == ends
    read_in_group(client, broker, name, together, member_count=2, written=written)


def read_in_group(
    client: Client, broker: BrokerProcess, topic: str, group: str, *, member_count: int, written: list[tuple[str, str]]
) -> list[int]:
    """A group reads all records; returns the end of each partition.

    After a rebalance a member reads records again whose offsets are not committed, so the programs
    count distinct offsets.
    """
    seen = client.run("group", broker.bootstrap, topic, group, member_count, len(written))
    places = {(each["partition"], each["offset"]): (each["value"], each["key"]) for each in seen}
    assert sorted(places.values()) == written
    return [1 + max(offset for partition, offset in places if partition == at) for at in range(PARTITIONS)]


def test_franz_go_copies_a_topic_in_transactions(broker: BrokerProcess, name: str) -> None:
    """The records of the first, aborted transaction are read again, and copied once."""
    target, franz = f"{name}-copy", CLIENTS[0]
    for topic in (name, target):
        rd.create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    franz.run("produce", broker.bootstrap, name, "none", COUNT)
    (done,) = franz.run("copy", broker.bootstrap, name, target, name, COUNT)
    assert done["copied"] == COUNT and done["transactions"] > 1
    read = [
        (each.value() or b"").decode()
        for at in range(PARTITIONS)
        for each in rd.consume(broker.bootstrap, target, partition=at, isolation_level="read_committed")
    ]
    assert sorted(read) == sorted(f"none {number}" for number in range(COUNT))


def test_admin_client_changes_and_deletes_a_topic(client: Client, broker: BrokerProcess, name: str) -> None:
    assert client.run("admin", broker.bootstrap, name) == [
        {"partitions": 5, "retention.ms": DAY_MS, "segment.ms": DAY_MS, "written": 1, "left": 0, "brokers": 1}
    ]
    assert name not in rd.admin_client(broker.bootstrap).list_topics(timeout=10).topics


def test_franz_go_registers_looks_up_encodes_and_deletes_schemas() -> None:
    port = free_port()
    with run_ottla_broker(schema_registry_listener=f"127.0.0.1:{port}"):
        results = Client("registry").run("exchange", f"http://127.0.0.1:{port}")
    assert results == [
        {"subject": "address", "level": "FULL"},
        {"subject": "address", "id": 1, "version": 1},
        {"subject": "orders-value", "id": 2, "version": 1},
        {"frame": base64.b64encode(b"\0" + (2).to_bytes(4, "big")).decode(), "city": "Newark"},
        {"found": 2, "references": 1, "used by": 2},
        {"refused": 409},
        {"compatible": False, "messages": 0},
        {"deleted": [1], "subjects": ["address"]},
    ]
