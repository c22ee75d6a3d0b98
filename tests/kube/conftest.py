"""One cluster for all tests that need nodes; it is made when the first one asks for it."""

from collections.abc import Iterator

import pytest

from tests.kube.broker_pods import make_storage
from tests.kube.cluster import Kube, cluster


@pytest.fixture(scope="package")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node. While it is there, tests are on the network beside it."""
    with cluster(tmp_path_factory.mktemp("kube"), nodes=1) as made:
        make_storage(made.plane.admin)
        yield made
