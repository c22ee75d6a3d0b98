"""Mirrors to clusters of three brokers: the logs stay identical while leaders change and brokers of
the target, and of a source that is Ottla, are killed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.mirror_load import PARTITIONS, TOPIC, produce_to_source, produce_to_target, wait_for_acknowledgements
from tests.e2e.mirroring import mirror_status, read_log_bytes, read_records, read_watermarks, set_mirror
from tests.waiting import eventually


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.slow), "ottla"])
def source(request: pytest.FixtureRequest) -> Iterator[ProcessCluster]:
    with run_cluster(request.param, 3 if request.param == "ottla" else 1, **SETTINGS[request.param]) as cluster:
        yield cluster


SETTINGS: dict[str, dict[str, Any]] = {
    "ottla": {},
    # Three JVMs are too many for a small machine, so a source that is Apache Kafka has one broker.
    "kafka": dict.fromkeys(
        (
            "default_replication_factor",
            "min_insync_replicas",
            "offsets_topic_replication_factor",
            "transaction_state_log_replication_factor",
            "transaction_state_log_min_isr",
        ),
        "1",
    ),
}


def test_logs_are_identical_while_brokers_are_killed(source: ProcessCluster) -> None:
    with run_cluster("ottla", 3) as target:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        factor = len(source.brokers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, factor)])[TOPIC].result(30)
        set_mirror(
            target.bootstrap,
            "west",
            {"bootstrap.servers": source.bootstrap, "topics": "*", "metadata.max.age.ms": "500"},
        )
        with produce_to_source(source) as acknowledged:
            eventually(
                lambda: read_watermarks(target.bootstrap, TOPIC, 0)[1] > 100,
                within_s=30,
                message="a hundred copied records",
            )
            for victim in target.brokers:
                broker = target.brokers[victim]
                if victim == 2:
                    broker.stop()  # a controlled shutdown: its partitions get other leaders
                else:
                    broker.kill()
                wait_for_acknowledgements(acknowledged)
                broker.start()
                target.wait_until_healthy()
                wait_for_acknowledgements(acknowledged)
            if factor > 1:
                for broker in source.brokers.values():
                    broker.kill()
                    wait_for_acknowledgements(acknowledged)
                    broker.start()
                    source.wait_until_healthy()
        watermarks = {partition: read_watermarks(source.bootstrap, TOPIC, partition) for partition in range(PARTITIONS)}
        for partition, expected in watermarks.items():
            eventually(
                lambda partition=partition, expected=expected: (  # type: ignore[misc]
                    read_watermarks(target.bootstrap, TOPIC, partition) == expected
                ),
                within_s=60,
                message=lambda partition=partition, expected=expected: (
                    f"{TOPIC}-{partition}: {expected} at the source, "
                    f"{read_watermarks(target.bootstrap, TOPIC, partition)} at the target"
                ),  # type: ignore[misc]
            )
            assert read_records(target.bootstrap, TOPIC, partition) == read_records(source.bootstrap, TOPIC, partition)
        target.wait_until_healthy()
        assert sum(end for _, end in watermarks.values()) == acknowledged[0]
        for partition in range(PARTITIONS):
            log = read_log_bytes(source.brokers[1].log_dir, TOPIC, partition)
            for broker in target.brokers.values():
                assert read_log_bytes(broker.log_dir, TOPIC, partition) == log


@pytest.mark.parametrize("source", ["ottla"], indirect=True)
def test_failover_while_a_broker_is_killed_loses_no_acknowledged_record(source: ProcessCluster) -> None:
    """Below the reported offset the target has the source's log. Above it are the records that the
    target has acknowledged, each once.
    """
    with run_cluster("ottla", 3) as target:
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        set_mirror(target.bootstrap, "west", {"bootstrap.servers": source.bootstrap, "topics": TOPIC})
        with produce_to_source(source) as acknowledged:
            wait_for_acknowledgements(acknowledged)
            eventually(
                lambda: read_watermarks(target.bootstrap, TOPIC, 0)[1] > 100,
                within_s=30,
                message="a hundred copied records",
            )
            victim = target.partition_state(TOPIC, 0).leader
            set_mirror(target.bootstrap, "west", {"role": "FailedOver"})
            target.brokers[victim].kill()
            with produce_to_target(target) as written:
                eventually(lambda: len(written) > 500, within_s=60, message="500 records acknowledged by the target")
                target.brokers[victim].start()
        for partition in range(PARTITIONS):
            status = mirror_status(target.bootstrap, TOPIC, partition)
            assert status["state"] == "FailedOver"
            end = status["end"]
            records = read_records(target.bootstrap, TOPIC, partition)
            assert records[:end] == read_records(source.bootstrap, TOPIC, partition)[:end]
            assert end > 0
            own_values = [record.value for record in records[end:]]
            assert len(set(own_values)) == len(own_values)
            assert {value for value, at in written if at == partition} <= set(own_values)
