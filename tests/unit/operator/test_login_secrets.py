"""The operator creates the Secret of the inter-broker login, or stops where that would lock brokers
out."""

import asyncio
from typing import Any, cast

import pytest

from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.kinds import SECRET
from ottla_operator.kube.login_secrets import ensure_login
from ottla_operator.kube.owned_objects import ClusterObjects
from ottla_operator.plan.observed_pods import broker_pods
from ottla_operator.plan.password_rotation import LoginSecret
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi

NAME = "demo-inter-broker-login"
RESOURCE = samples.cluster(listeners=[{"name": "safe", "port": 9094, "authentication": "SCRAM"}])
CLUSTER = Cluster.parse({**RESOURCE, "metadata": {"name": "demo", "namespace": "events", "uid": "c1"}})


def pod(passwords: str, *, is_ready: bool = True) -> Json:
    annotations = {"ottla.dev/inter-broker-login": "Required", "ottla.dev/inter-broker-passwords": passwords}
    metadata = {"name": "demo-1", "uid": "p1", "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": str(is_ready)}]}
    return {"metadata": metadata, "spec": {"containers": []}, "status": status}


def stateful_set(passwords: str) -> Json:
    return {"spec": {"template": {"metadata": {"annotations": {"ottla.dev/inter-broker-passwords": passwords}}}}}


def ensure_login_secret(api: FakeApi, *pods: Json, existing: Json | None = None) -> LoginSecret:
    observed = ClusterObjects(existing, broker_pods(CLUSTER, pods), "", {}, {}, "demo-brokers")
    return asyncio.run(ensure_login(cast(ApiClient, api), CLUSTER, observed, ""))


def test_the_secret_is_created_once_and_belongs_to_the_cluster() -> None:
    api = FakeApi()
    made = ensure_login_secret(api)
    assert ensure_login_secret(api) == made and api.writes == [f"create Secret {NAME}"]
    (owner,) = api.of("Secret")[NAME]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Cluster", "c1")


def test_a_secret_that_ready_brokers_do_not_have_is_not_used() -> None:
    api = FakeApi()
    made = ensure_login_secret(api)
    assert ensure_login_secret(api, pod(made.in_use.digest), existing=stateful_set(made.in_use.digest)) == made
    with pytest.raises(Blocked, match=f"Secret {NAME} was changed: restore it"):
        ensure_login_secret(api, pod("other"), existing=stateful_set("other"))
    assert ensure_login_secret(api, pod("other", is_ready=False), existing=stateful_set("other")) == made
    del api.objects["Secret", "events", NAME]
    with pytest.raises(Blocked, match=f"Secret {NAME} was deleted: restore it"):
        ensure_login_secret(api, pod(made.in_use.digest), existing=stateful_set(made.in_use.digest))
    assert (
        ensure_login_secret(api, pod(made.in_use.digest, is_ready=False), existing=stateful_set(made.in_use.digest))
        != made
    )


def test_pods_without_a_stateful_set_keep_their_passwords() -> None:
    """The StatefulSet is missing while disks are expanded."""
    api = FakeApi()
    made = ensure_login_secret(api)
    assert ensure_login_secret(api, pod(made.in_use.digest)) == made


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ({}, "exists and is not the operator's"),
        (
            {"labels": {"app.kubernetes.io/managed-by": "ottla-operator"}},
            r"has been changed: restore its passwords.*\(broker\.password: it is missing; a",
        ),
    ],
)
def test_a_secret_of_others_or_without_passwords_is_an_error(secret: dict[str, Any], message: str) -> None:
    api = FakeApi()
    api.put(SECRET, {"metadata": {"name": NAME, "namespace": "events", **secret}, "data": {}})
    with pytest.raises(Blocked, match=message):
        ensure_login_secret(api)


def test_without_the_right_to_create_secrets_the_message_names_the_chart() -> None:
    api = FakeApi(reject=lambda write: ApiError(403, "forbidden") if write.startswith("create Secret") else None)
    with pytest.raises(Blocked, match=r"install its chart with rbac\.secrets=true"):
        ensure_login_secret(api)
