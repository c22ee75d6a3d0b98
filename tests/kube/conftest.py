"""One cluster for all tests that need nodes; it is made when the first one asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jars import unavailable
from tests.kube.cluster import Kube, cluster, missing
from tests.kube.images import build


@pytest.fixture(scope="package")
def broker_image() -> Path:
    """An archive of it. Built before anything enters a cluster's network, on which nothing can be fetched."""
    if lacking := missing() or build.missing():
        unavailable(lacking)
    return build.archived("broker")


@pytest.fixture(scope="package")
def operator_image(broker_image: Path) -> Path:
    """As the brokers'; whoever makes the cluster has it built first."""
    return build.archived("operator")


@pytest.fixture(scope="package")
def kube(broker_image: Path, operator_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node, which has the broker's image. While it is there, tests are on the network beside it."""
    with cluster(tmp_path_factory.mktemp("kube"), nodes=1) as made:
        made.has(broker_image)
        yield made
