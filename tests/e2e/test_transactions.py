"""Transactions on three brokers that are killed in turn. Many more kills:
`python -m tests.e2e.transaction_kills 100`.
"""

from collections.abc import Iterator
from functools import partial
from random import Random

import confluent_kafka as ck
import pytest

from tests.clusters import ProcessCluster
from tests.e2e.transaction_kills.kills import (
    PARTITIONS,
    create_topic,
    kill_under_load,
    read_committed,
    run_three_brokers,
)
from tests.waiting import eventually

KILLS = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with run_three_brokers() as running:
        yield running


def has_values(cluster: ProcessCluster, topic: str, expected: list[str]) -> bool:
    return sorted(read_committed(cluster, topic)) == expected


def test_each_record_is_copied_once_while_brokers_are_killed(cluster: ProcessCluster) -> None:
    result = kill_under_load(cluster, KILLS, Random(1))
    assert (result.duplicates, result.losses, result.unexpected) == (0, 0, 0), result
    assert result.sent and result.transactions


@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_decision_is_completed_though_a_broker_is_killed_right_after_it(cluster: ProcessCluster, commit: bool) -> None:
    """Each broker in turn is killed right after a coordinator, perhaps this broker, has
    answered.
    """
    topic = f"decided-{commit}"
    create_topic(cluster, topic)
    wanted: list[str] = []
    for number, broker in cluster.brokers.items():
        producer = ck.Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 0}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d-%d" % (number, partition), partition=partition)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
        broker.kill()
        wanted += [f"{number}-{partition}" for partition in range(PARTITIONS)] if commit else []
        marker = f"after {number}"
        plain = ck.Producer({"bootstrap.servers": cluster.bootstrap})
        for partition in range(PARTITIONS):
            plain.produce(topic, marker, partition=partition)
            wanted.append(marker)
        assert plain.flush(60) == 0
        expected = sorted(wanted)
        eventually(partial(has_values, cluster, topic, expected), within_s=60)
        broker.start()
        cluster.wait_until_healthy()
