"""Fixtures of a Cluster that an operator reconciles."""

import pytest

from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.cluster_operator import SPEC, Operator


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.put_cluster(dict(SPEC))
    return made


@pytest.fixture
def operator(api: FakeApi) -> Operator:
    return Operator(api)
