"""The schema registry of three brokers: every broker serves it, and one of them, the writer, may
fail.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.clients import librdkafka as rd
from tests.clusters import ProcessCluster, run_cluster
from tests.ports import free_port
from tests.waiting import eventually

SCHEMAS = "_schemas"


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[tuple[ProcessCluster, dict[int, SchemaRegistryClient]]]:
    """A cluster, and one client for the registry of each broker."""
    ports = {number: free_port() for number in (1, 2, 3)}
    with run_cluster("ottla", 3, folder=tmp_path, start=False, default_replication_factor=3) as cluster:
        for number, broker in cluster.brokers.items():
            broker.settings["schema.registry.listener"] = f"127.0.0.1:{ports[number]}"
        cluster.start()
        clients = {
            number: SchemaRegistryClient({"url": f"http://127.0.0.1:{port}", "max.retries": 0})
            for number, port in ports.items()
        }
        yield cluster, clients


def fixed(size: int) -> Schema:
    return Schema(f'{{"type":"fixed","name":"F","size":{size}}}', "AVRO")


def writer(cluster: ProcessCluster) -> int:
    return cluster.partition_state(SCHEMAS).leader


def test_every_broker_reads_what_any_broker_has_written(
    registries: tuple[ProcessCluster, dict[int, SchemaRegistryClient]],
) -> None:
    cluster, clients = registries
    for number, client in clients.items():
        client.set_compatibility(f"s{number}", "NONE")
        for size in range(1, 6):
            written = client.register_schema(f"s{number}", fixed(size * 10 + number))
            assert client.get_versions(f"s{number}")[-1] == size, "a client reads what it has written"
            for other in clients.values():
                assert other.get_version(f"s{number}", size).schema_id == written
                other.clear_caches()
    assert len(cluster.partition_state(SCHEMAS).isr) == 3
    assert {client.get_subjects()[0] for client in clients.values()} == {"s1"}


def test_no_schema_is_lost_when_the_writer_fails(
    registries: tuple[ProcessCluster, dict[int, SchemaRegistryClient]],
) -> None:
    cluster, clients = registries
    clients[1].set_compatibility("s", "NONE")
    acknowledged: dict[int, int] = {}
    for size in range(1, 11):
        acknowledged[size] = clients[size % 3 + 1].register_schema("s", fixed(size))
    fallen = writer(cluster)
    cluster.brokers[fallen].kill()
    remaining = [client for number, client in clients.items() if number != fallen]

    def registers(size: int) -> bool:
        try:
            acknowledged[size] = remaining[size % 2].register_schema("s", fixed(size))
        except Exception:  # noqa: BLE001 (the client's own, of several kinds)
            return False
        return True

    for size in range(11, 21):
        eventually(partial(registers, size), within_s=60, message=f"registration {size} after the writer failed")
    assert writer(cluster) != fallen
    cluster.brokers[fallen].start()
    cluster.wait_until_healthy()
    for client in clients.values():
        client.clear_caches()
        found = {size: client.lookup_schema("s", fixed(size)) for size in acknowledged}
        assert {size: one.schema_id for size, one in found.items()} == acknowledged
        assert len(set(acknowledged.values())) == 20, "no id is given twice"
        assert sorted(client.get_versions("s")) == sorted({one.version for one in found.values()})


def test_a_new_schema_is_known_to_the_leaders_of_all_partitions(
    registries: tuple[ProcessCluster, dict[int, SchemaRegistryClient]],
) -> None:
    cluster, clients = registries
    validation: dict[str, Any] = {"confluent.value.schema.validation": "true"}
    rd.create_topic(cluster.bootstrap, "t", 6, **validation)
    clients[1].set_compatibility("t-value", "NONE")
    errors: list[ck.KafkaError] = []
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})

    def add_error(error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            errors.append(error)

    for size in range(1, 21):
        schema_id = clients[size % 3 + 1].register_schema("t-value", fixed(size))
        for partition in range(6):
            producer.produce("t", b"\0" + schema_id.to_bytes(4, "big"), partition=partition, on_delivery=add_error)
        assert producer.flush(30) == 0
    assert errors == [], "no record of a schema that was registered before is refused"
    for partition in range(6):
        producer.produce("t", b"\0\x7f\xff\xff\xff", partition=partition, on_delivery=add_error)
    assert producer.flush(60) == 0
    assert [error.code() for error in errors] == [ck.KafkaError.INVALID_RECORD] * 6
