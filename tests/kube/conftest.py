"""One cluster for all tests that need nodes; it is made when the first one asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jars import unavailable
from tests.kube.cluster import Kube, cluster, missing
from tests.kube.images import build


@pytest.fixture(scope="package")
def images() -> dict[str, Path]:
    """Archives of them. Built before anything enters a cluster's network, on which nothing can be fetched."""
    if lacking := missing() or build.missing():
        unavailable(lacking)
    return {name: build.archived(name) for name in ("broker", "spark")}


@pytest.fixture(scope="package")
def kube(images: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node, which has the broker's image. While it is there, tests are on the network beside it."""
    with cluster(tmp_path_factory.mktemp("kube"), nodes=1) as made:
        made.has(images["broker"])
        yield made


@pytest.fixture(scope="package")
def spark_image(kube: Kube, images: dict[str, Path]) -> None:
    """Every node has the pipelines' image: large, so only for who asks for it."""
    kube.has(images["spark"])
