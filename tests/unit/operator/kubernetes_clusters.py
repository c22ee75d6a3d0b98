"""Clusters that Kubernetes can run."""

from typing import Any

from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.validation import validate_resource
from tests.unit.operator.samples import cluster

STORAGE = {"size": "10Gi"}


def valid_cluster(data: dict[str, Any], **spec: Any) -> Cluster:
    whole = {
        **data,
        "metadata": {"namespace": "events", "uid": "c1", **data["metadata"]},
        "spec": {**data["spec"], **spec},
    }
    assert not validate_resource(whole)
    return Cluster.parse(whole)


def cluster_with(**spec: Any) -> Cluster:
    return valid_cluster(cluster(), **{"storage": STORAGE, **spec})
