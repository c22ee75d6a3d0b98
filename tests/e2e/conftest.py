"""Whole clusters of processes: of Ottla by default, of Apache Kafka with `--against kafka`."""

from collections.abc import Iterator

import pytest

from tests.clusters import Cluster, cluster_of


@pytest.fixture
def cluster(against: str) -> Iterator[Cluster]:
    """Three brokers on loopback."""
    with cluster_of(against, 3) as cluster:
        yield cluster
