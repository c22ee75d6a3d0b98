"""Whole clusters of processes: of Ottla by default, of Apache Kafka with `--against kafka`."""

from collections.abc import Iterator

import pytest

from tests.clusters import ProcessCluster, run_cluster


@pytest.fixture
def cluster(broker_kind: str) -> Iterator[ProcessCluster]:
    """Three brokers on loopback."""
    with run_cluster(broker_kind, 3) as cluster:
        yield cluster
