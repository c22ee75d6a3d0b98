"""Fixtures of a Cluster or a Pipeline that an operator reconciles, and of certificates."""

import pytest

from tests.kube.certificates import CertificateAuthority, create_certificate_authority
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import SPEC, Operator
from tests.unit.operator.pipeline_world import PipelineWorld, pipeline_api


@pytest.fixture
def api() -> FakeApi:
    """An API server with the Cluster `demo`."""
    made = FakeApi()
    made.put_cluster(dict(SPEC))
    return made


@pytest.fixture
def operator(api: FakeApi) -> Operator:
    return Operator(api)


@pytest.fixture
def world() -> PipelineWorld:
    """The Pipeline `hourly` and its source topic `flights`."""
    made = PipelineWorld(pipeline_api())
    made.put_source_topic()
    return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return create_certificate_authority(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1"], ["localhost"])
