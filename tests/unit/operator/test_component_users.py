"""Users that the operator creates for Pipelines and Mirrors: their rules, and how a pipeline waits
for its own.
"""

import base64
from typing import Any

import pytest

from ottla_operator.kube.kinds import CLUSTER, PIPELINE, SECRET, USER
from ottla_operator.plan.acl_patterns import describe_entry
from ottla_operator.plan.component_users import (
    mirror_user,
    needs_mirror_user,
    needs_pipeline_user,
    pipeline_user,
)
from ottla_operator.plan.users import desired_user
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.user import User
from ottla_operator.resources.validation import validate_resource
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.pipeline_world import PipelineWorld

SCRAM = {"name": "safe", "port": 9094, "authentication": "SCRAM"}
PLAIN = {"name": "plain", "port": 9092}
TLS = {"name": "certs", "port": 9095, "tls": True, "authentication": "TLS"}
ACL = {"type": "ACL"}


def cluster(*listeners: Json, **spec: Any) -> Cluster:
    return Cluster.parse(samples.cluster(listeners=list(listeners), **spec))


SECURED = cluster(SCRAM, authorization=ACL)


def rules_of(user: Json) -> set[str]:
    assert not validate_resource(user)
    acls = desired_user(User.parse(user), user["metadata"]["name"], {}, is_password_set=True).acls
    assert acls is not None
    return {describe_entry(it).removesuffix(f" to User:{user['metadata']['name']}") for it in acls}


def test_a_pipeline_may_do_what_its_spec_says_and_nothing_else() -> None:
    pipeline = Pipeline.parse(samples.pipeline(deadLetter={"topic": "rejected"}, consumerGroup="delays"))
    assert rules_of(pipeline_user(pipeline, SECURED)) == {
        "allow Read on topic flights",
        "allow Read on topic late",
        "allow Write on topic late",
        "allow Create on topic late",
        "allow Write on topic rejected",
        "allow Create on topic rejected",
        "allow Read on group delays",
        "allow Read on group delays.sink.*",
        "allow Write on transactional id delays.sink.*",
    }


def test_a_pipeline_may_read_the_topics_that_it_compares() -> None:
    sinks = [{"from": "late", "topic": "late-2", "compareWith": "late"}]
    found = rules_of(pipeline_user(Pipeline.parse(samples.pipeline(sinks=sinks)), SECURED))
    assert {it for it in found if "Read on topic" in it or "late " in it} == {
        "allow Read on topic flights",
        "allow Read on topic late",
        "allow Read on topic late-2",
    }


def test_a_mirror_may_read_what_it_copies() -> None:
    mirror = Mirror.parse(samples.mirror(topics=["orders", "eu-*", "!eu-secret*", "a*b", "!x*y"], groups=["*"]))
    reads = ["topic orders", "topic eu-*", "topic a*"]
    assert rules_of(mirror_user(mirror, SECURED)) == {
        *(f"allow {operation} on {it}" for it in reads for operation in ("Read", "DescribeConfigs")),
        "deny Read on topic eu-secret*",
        "deny DescribeConfigs on topic eu-secret*",
        "allow Describe on group *",
    }


def test_without_access_rules_a_user_has_only_a_password() -> None:
    user = pipeline_user(Pipeline.parse(samples.pipeline()), cluster(SCRAM))
    assert not validate_resource(user) and "acls" not in user["spec"]


@pytest.mark.parametrize(
    ("listeners", "needed"),
    [([PLAIN], False), ([SCRAM], True), ([SCRAM, PLAIN], False), ([TLS], False), ([TLS, SCRAM], True)],
)
def test_users_are_created_only_where_clients_need_a_password(listeners: list[Json], needed: bool) -> None:
    demo = Cluster.parse(samples.cluster(listeners=listeners, tls={"secretRef": {"name": "certs"}}))
    assert needs_pipeline_user(Pipeline.parse(samples.pipeline()), demo) is needed
    assert needs_mirror_user(Mirror.parse(samples.mirror(source={"clusterRef": {"name": "demo"}})), demo) is needed
    named = Pipeline.parse(samples.pipeline(userRef={"name": "mine"}))
    assert not needs_pipeline_user(named, demo)
    credentials = {"mechanism": "PLAIN", "secretRef": {"name": "mine"}}
    source = {"clusterRef": {"name": "demo"}, "credentials": credentials}
    assert not needs_mirror_user(Mirror.parse(samples.mirror(source=source)), demo)


def test_a_user_has_a_certificate_where_clients_log_in_by_certificates_alone() -> None:
    mirror = Mirror.parse(samples.mirror(source={"clusterRef": {"name": "demo"}}))
    pipeline = Pipeline.parse(samples.pipeline())
    for listeners, authentication in (([TLS], "TLS"), ([TLS, SCRAM], "SCRAM-SHA-512")):
        demo = Cluster.parse(samples.cluster(listeners=listeners, tls={"issuer": "Internal"}))
        assert needs_mirror_user(mirror, demo) and needs_pipeline_user(pipeline, demo)
        for user in (mirror_user(mirror, demo), pipeline_user(pipeline, demo)):
            assert not validate_resource(user) and user["spec"]["authentication"] == {"type": authentication}
    partly_open = Cluster.parse(samples.cluster(listeners=[TLS, PLAIN], tls={"issuer": "Internal"}))
    assert not needs_mirror_user(mirror, partly_open) and not needs_pipeline_user(pipeline, partly_open)


# A pipeline on Kubernetes.


def put(api: FakeApi, kind: Any, resource: Json) -> Json:
    metadata = {"namespace": "events", "generation": 1, **resource["metadata"]}
    return api.put(kind, {**resource, "metadata": metadata, "status": {}})


def secured_world(**spec: Any) -> PipelineWorld:
    """The Pipeline `hourly` of a Cluster whose clients log in and have access rules."""
    api = FakeApi(unserved={"SparkApplication"})
    put(api, CLUSTER, samples.cluster(listeners=[SCRAM], authorization=ACL, storage={"size": "1Gi"}))
    put(api, PIPELINE, samples.pipeline(checkpoint={"pvc": {"size": "1Gi"}}, **spec))
    world = PipelineWorld(api)
    world.put_source_topic()
    return world


def give_password(world: PipelineWorld, name: str, password: str) -> None:
    """Writes the User's Secret and status as its reconciler does."""
    user = world.api.of("User")[name]
    user["metadata"].setdefault("generation", 1)
    user["status"] = {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 1}
    values = {
        "username": name,
        "password": password,
        "bootstrap.servers": "demo-safe-bootstrap.events.svc:9094",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f"…{password}…",
    }
    owner = {"kind": "User", "name": name, "uid": user["metadata"]["uid"]}
    labels = {"app.kubernetes.io/managed-by": "ottla-operator"}
    metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
    data = {key: base64.b64encode(it.encode()).decode() for key, it in values.items()}
    put(world.api, SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def ready_reason(world: PipelineWorld) -> str:
    return str(world.conditions["Ready"]["reason"])


def pod_template(world: PipelineWorld) -> Json:
    (deployment,) = world.api.of("Deployment").values()
    return deployment["spec"]["template"]


def test_a_pipeline_logs_in_as_a_user_of_its_own() -> None:
    world = secured_world()
    assert "apply User pipeline-hourly" in world.reconcile()
    assert ready_reason(world) == "WaitingForUser" and not world.api.of("Deployment")
    (owner,) = world.api.of("User")["pipeline-hourly"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pipeline", "hourly")
    world.reconcile()
    assert ready_reason(world) == "WaitingForUser"
    give_password(world, "pipeline-hourly", "first")
    world.reconcile()
    template = pod_template(world)
    (volume,) = (it for it in template["spec"]["volumes"] if it["name"] == "login")
    assert volume["secret"]["secretName"] == "pipeline-hourly"
    arguments = template["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--login") + 1] == "/etc/ottla-login"
    assert arguments[arguments.index("--bootstrap") + 1] == "demo-safe-bootstrap.events.svc:9094"
    assert "first" not in str(template)
    assert not world.reconcile()
    give_password(world, "pipeline-hourly", "second")
    world.reconcile()
    assert pod_template(world)["metadata"]["annotations"] != template["metadata"]["annotations"]


def test_a_pipeline_logs_in_as_the_user_that_it_names() -> None:
    world = secured_world(userRef={"name": "mine"})
    world.reconcile()
    assert ready_reason(world) == "WaitingForUser" and not world.api.of("User")
    put(world.api, USER, samples.user("mine"))
    give_password(world, "mine", "mine")
    world.reconcile()
    (volume,) = (it for it in pod_template(world)["spec"]["volumes"] if it["name"] == "login")
    assert volume["secret"]["secretName"] == "mine"


@pytest.mark.parametrize(("type_", "reason"), [("SCRAM-SHA-512", "WaitingForUser"), ("External", "UserNotReady")])
def test_a_user_without_a_secret_is_waited_for_unless_it_never_gets_one(type_: str, reason: str) -> None:
    world = secured_world(userRef={"name": "mine"})
    user = put(world.api, USER, samples.user("mine", authentication={"type": type_}))
    user["status"] = {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 1}
    world.reconcile()
    assert ready_reason(world) == reason and not world.api.of("Deployment")


def test_the_user_is_deleted_when_the_pipeline_names_another() -> None:
    world = secured_world()
    world.reconcile()
    world.reconcile()
    world.edit(userRef={"name": "mine"})
    world.reconcile()
    assert not world.api.of("User")


def test_a_user_that_a_person_made_is_not_taken_over() -> None:
    world = secured_world()
    put(world.api, USER, samples.user("pipeline-hourly"))
    world.reconcile()
    assert ready_reason(world) == "NameConflict"
    assert world.api.of("User")["pipeline-hourly"]["spec"] == samples.user("pipeline-hourly")["spec"]
