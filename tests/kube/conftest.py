"""Fixtures of tests on a real Kubernetes, each set up on its first use.

A module without nodes has its own API server, and each of its tests an operator process. All tests
with nodes share one Kubernetes with one installed operator and one Cluster.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests import oidc_server
from tests.iceberg_catalog import fetch_catalog_jars
from tests.jars import JarsUnavailable, fetch_classpath, skip_or_fail_in_ci
from tests.kube.cluster import Kubernetes, missing_requirement, run_kubernetes
from tests.kube.control_plane import ControlPlane, run_control_plane
from tests.kube.custom_resource_definitions import crd_path, install_crds
from tests.kube.images import build
from tests.kube.installed_operator import InstalledOperator
from tests.kube.managed_cluster import NAMESPACE, ManagedCluster
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.kube.resource_history import ResourceHistory


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server without nodes, CRDs or operator."""
    with run_control_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def crds(plane: ControlPlane) -> None:
    install_crds(plane.admin)


@pytest.fixture
def operator(plane: ControlPlane, crds: None, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator process beside the API server, stopped after the test."""
    process = OperatorProcess(tmp_path, plane.kubeconfig())
    process.start()
    try:
        yield process
    finally:
        process.daemon.stop()


@pytest.fixture
def resources(plane: ControlPlane, crds: None) -> NamespaceClient:
    """A client for a new namespace."""
    client = NamespaceClient(plane.admin, f"ns-{uuid4().hex[:8]}")
    client.create_namespace()
    return client


@pytest.fixture(scope="package")
def images(request: pytest.FixtureRequest) -> dict[str, Path]:
    """Image archives by name. They are built, and the jars of some tests are fetched, before a
    fixture enters the node network, from which nothing can be downloaded.
    """
    if missing := missing_requirement() or build.missing_requirement():
        skip_or_fail_in_ci(missing)
    requested = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    with suppress(JarsUnavailable):  # the tests that need them say why
        fetch_classpath()
        if "rest_catalog" in requested:
            fetch_catalog_jars()
    if "oidc" in requested:
        oidc_server.install_server()
    names = ("broker", "operator", *(["spark"] if "spark_image" in requested else []))
    return {name: build.build_archive(name) for name in names}


@pytest.fixture(scope="package")
def kube(images: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A Kubernetes with one node, which has the broker's image. Tests are on the node network."""
    with run_kubernetes(tmp_path_factory.mktemp("kube"), nodes=1) as kubernetes:
        kubernetes.load_image(images["broker"])
        yield kubernetes


@pytest.fixture(scope="package")
def spark_image(kube: Kubernetes, images: dict[str, Path]) -> None:
    """Loads the Spark image into every node. It is large, so only tests with this fixture load
    it.
    """
    kube.load_image(images["spark"])


@pytest.fixture(scope="package")
def installed_operator(images: dict[str, Path], kube: Kubernetes) -> Iterator[InstalledOperator]:
    """The operator, installed from the chart by helm."""
    kube.load_image(images["operator"])
    operator = InstalledOperator(kube)
    operator.install()
    yield operator
    operator.uninstall()
    assert kube.plane.admin.get(crd_path("topics.ottla.dev")), "uninstalling the chart deleted the CRDs"


@pytest.fixture(scope="package")
def demo_cluster(installed_operator: InstalledOperator) -> Iterator[ManagedCluster]:
    """A Cluster of three brokers, shared by all modules."""
    api = installed_operator.kube.plane.admin
    restricted = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
    with ResourceHistory(api, NAMESPACE) as history:
        cluster = ManagedCluster(installed_operator, NamespaceClient(api, NAMESPACE), history)
        cluster.create()
        yield cluster


@pytest.fixture
def demo(demo_cluster: ManagedCluster) -> Iterator[ManagedCluster]:
    """The Cluster of three brokers. The test fails if any version of its resources had inconsistent
    conditions.
    """
    yield demo_cluster
    assert demo_cluster.history.find_violations() == []
