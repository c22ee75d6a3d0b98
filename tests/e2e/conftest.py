"""Whole clusters of processes: of Ottla by default, of Apache Kafka with `--against kafka`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ProcessCluster, run_cluster
from tests.e2e.up_process import UpProcess, prepare_up


@pytest.fixture
def cluster(broker_kind: str) -> Iterator[ProcessCluster]:
    """Three brokers on loopback."""
    with run_cluster(broker_kind, 3) as cluster:
        yield cluster


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    """`ottla up` in the test's folder; the test writes resources and starts it."""
    with prepare_up(tmp_path) as up:
        yield up
