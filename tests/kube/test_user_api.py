"""Users on a real API server without nodes; the broker of the secured Cluster is a process."""

import base64
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import pkcs12

from ottla_broker.wire.listener_tls import inspect_certificate
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.inter_broker_login import (
    InterBrokerLogin,
    restricted_super_users,
)
from ottla_operator.plan.password_rotation import LoginSecret
from tests.brokers import BrokerProcess
from tests.kube.api_client import ApiError, Json
from tests.kube.fake_kubelet import create_cluster_with_broker, run_broker_process
from tests.kube.namespace_client import NamespaceClient
from tests.kube.operator_process import OperatorProcess
from tests.waiting import eventually

HOST = "127.9.1.7"
LOGIN = LoginSecret.generate()
SECURED = {
    "listeners": f"INTER_BROKER://{HOST}:9091,CLIENTS://{HOST}:9094",
    "listener.security.protocol.map": "INTER_BROKER:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INTER_BROKER",
    "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ottla-broker",
    "restricted.super.users": restricted_super_users(InterBrokerLogin.REQUIRED),
    "listener.name.inter_broker.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.inter_broker.scram-sha-512.sasl.jaas.config": LOGIN.to_values()["sasl.jaas.config"],
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
}
SPEC: Json = {"clusterRef": {"name": "demo"}, "authentication": {"type": "SCRAM-SHA-512"}}
RULES = [{"allow": ["Describe", "Create"], "cluster": True}, {"allow": ["Read"], "topic": "orders*"}]


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with run_broker_process(HOST, SECURED) as broker:
        yield broker


@pytest.fixture
def secured(resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess) -> NamespaceClient:
    """A namespace with a secured Cluster whose only broker is `broker`."""
    create_login_secret(resources)
    listeners = [{"name": "clients", "port": 9094, "authentication": "SCRAM"}]
    create_cluster_with_broker(resources, broker, listeners=listeners, authorization={"type": "ACL"})
    return resources


def create_login_secret(resources: NamespaceClient) -> None:
    """Creates the Secret as the operator would, with the passwords that the broker has already."""
    labels = {"app.kubernetes.io/managed-by": "ottla-operator"}
    secret = {
        "metadata": {"name": "demo-inter-broker-login", "labels": labels},
        "stringData": LOGIN.to_values(),
    }
    resources.api.request("POST", f"/api/v1/namespaces/{resources.namespace}/secrets", secret)


def secret_values(resources: NamespaceClient, name: str) -> dict[str, str]:
    found = resources.list_objects("v1", "secrets")[name]
    return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def can_log_in(secret: dict[str, str]) -> bool:
    """True if librdkafka can log in with the Secret's settings.

    It connects to the broker process, which stands for the pod.
    """
    settings = dict(line.split("=", 1) for line in secret["librdkafka.properties"].splitlines())
    errors: list[KafkaError] = []
    admin = AdminClient({**settings, "bootstrap.servers": f"{HOST}:9094", "error_cb": errors.append, "log_level": 0})
    try:
        admin.list_topics(timeout=5)
    except KafkaException:
        admin.poll(5)  # calls error_cb
        assert any(it.code() == KafkaError._AUTHENTICATION for it in errors), errors
        return False
    return True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"acls": [{"topic": "a"}]}, "a rule has either allow or deny"),
        ({"acls": [{"allow": ["Read"], "topic": "a", "group": "b"}]}, "a rule is about one of topic, group"),
        ({"acls": [{"allow": ["Fly"], "topic": "a"}]}, "spec.acls"),
        ({"authentication": {"type": "TLS", "passwordFrom": {"name": "a", "key": "b"}}}, "only for SCRAM"),
    ],
)
def test_the_api_server_rejects_invalid_users(resources: NamespaceClient, change: Json, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        resources.create("User", "alice", {**SPEC, **change})


def test_names_of_a_user_are_immutable(resources: NamespaceClient) -> None:
    resources.create("User", "alice", {**SPEC, "userName": "a"})
    for change in ({"userName": "b"}, {"secretName": "b"}, {"clusterRef": {"name": "other"}}):
        with pytest.raises(ApiError, match="immutable"):
            resources.patch_spec("User", "alice", change)


def test_user_logs_in_with_its_secret_and_is_revoked_with_its_resource(
    secured: NamespaceClient, operator: OperatorProcess
) -> None:
    created = secured.create("User", "alice", {**SPEC, "userName": "Alice@example", "acls": RULES})
    assert kstatus(created) == "InProgress"
    user = secured.wait_for_status("User", "alice")
    assert user["status"]["userName"] == "Alice@example"
    assert "finalizers" not in user["metadata"]
    secret = secret_values(secured, "alice")
    assert secret["username"] == "Alice@example"
    assert secret["bootstrap.servers"] == f"demo-clients-bootstrap.{secured.namespace}.svc:9094"
    (owner,) = secured.list_objects("v1", "secrets")["alice"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("User", user["metadata"]["uid"])
    assert can_log_in(secret)
    assert not can_log_in({**secret, "librdkafka.properties": secret["librdkafka.properties"].strip() + "x\n"})
    before = user["metadata"]["resourceVersion"], operator.count_writes()
    reconciles = operator.count_reconciles("User")
    eventually(lambda: operator.count_reconciles("User") >= reconciles + 1, within_s=60)
    after = secured.get("User", "alice")["metadata"]["resourceVersion"], operator.count_writes()
    assert after == before, "nothing was written"
    messages = [it["message"] for it in secured.list_objects("v1", "events").values()]
    assert any("password set for SCRAM-SHA-512; 3 rules added" in it for it in messages), messages
    assert secret["password"] not in repr((user, messages, operator.daemon.log_tail()))
    secured.delete("User", "alice")
    eventually(lambda: not can_log_in(secret), within_s=30, message=operator.daemon.log_tail)


def test_problems_of_users_are_reported(secured: NamespaceClient) -> None:
    secured.create(
        "User",
        "without-secret",
        {**SPEC, "authentication": {"type": "SCRAM-SHA-256", "passwordFrom": {"name": "nothing", "key": "pw"}}},
    )
    secured.create("User", "without-authority", {**SPEC, "authentication": {"type": "TLS"}})
    secured.create("User", "without-cluster", {**SPEC, "clusterRef": {"name": "nothing"}})
    expected = {
        "without-secret": ("CredentialsUnusable", "Secret nothing does not exist"),
        "without-authority": ("AuthorityNotFound", "Cluster demo has no certificate authority of its own"),
        "without-cluster": ("ClusterNotFound", "Cluster nothing does not exist"),
    }
    eventually(
        lambda: (
            {name: secured.condition("User", name).get("reason") for name in expected}
            == {name: reason for name, (reason, _) in expected.items()}
        ),
        within_s=60,
    )
    for name, (_, message) in expected.items():
        assert message in secured.condition("User", name)["message"]


def test_certificates_of_the_clusters_own_authority_are_in_secrets(
    resources: NamespaceClient, broker: BrokerProcess, operator: OperatorProcess
) -> None:
    listeners = [{"name": "clients", "port": 9094, "tls": True, "authentication": "TLS"}]
    tls, authorization = {"issuer": "Internal"}, {"type": "ACL"}
    create_login_secret(resources)
    create_cluster_with_broker(resources, broker, listeners=listeners, tls=tls, authorization=authorization)
    resources.create("User", "billing", {**SPEC, "authentication": {"type": "TLS"}, "acls": RULES})
    user = resources.wait_for_status("User", "billing")
    assert user["status"]["userName"] == "CN=billing"
    data = resources.list_objects("v1", "secrets")["billing"]["data"]
    contents = {key: base64.b64decode(value) for key, value in data.items()}
    assert {"user.crt", "user.key", "ca.crt", "user.p12", "ca.p12", "user.password", "client.properties"} <= set(data)
    key, certificate, _ = pkcs12.load_key_and_certificates(contents["user.p12"], contents["user.password"])
    assert key is not None and certificate is not None
    server = secret_values(resources, "demo-certificates")
    trusted = resources.list_objects("v1", "configmaps")["demo-ca"]["data"]["ca.crt"]
    assert trusted == server["ca.crt"] == contents["ca.crt"].decode()
    names = inspect_certificate(server["tls.crt"], server["tls.key"]).names
    assert f"*.demo-brokers.{resources.namespace}.svc" in names
    assert f"demo-clients-bootstrap.{resources.namespace}.svc" in names
    cluster = resources.wait_for_status("Cluster", "demo")
    assert cluster["status"]["certificate"]["notAfter"] > cluster["status"]["certificate"]["renewalTime"]
    reconciles = operator.count_reconciles("User")
    # The events of what has become ready are written after its status.
    eventually(lambda: operator.count_reconciles("User") >= reconciles + 1, within_s=60)
    writes = operator.count_writes()
    eventually(lambda: operator.count_reconciles("User") >= reconciles + 3, within_s=90)
    assert operator.count_writes() == writes, "nothing is issued or written again"
    path = f"/api/v1/namespaces/{resources.namespace}/secrets/demo-certificates"
    resources.api.request("PATCH", path, {"data": {"tls.key": base64.b64encode(b"damaged").decode()}})

    def is_issued_again() -> bool:
        found = secret_values(resources, "demo-certificates")
        return found["tls.key"] != "damaged" and found["tls.crt"] != server["tls.crt"]

    eventually(is_issued_again, within_s=60, message=operator.daemon.log_tail)
    assert secret_values(resources, "demo-certificates")["ca.crt"] == trusted
    log = operator.daemon.log_tail()
    assert "PRIVATE" not in repr((resources.list_objects("v1", "events"), cluster, user, log))


def test_rules_of_a_policy_reach_its_users_and_go_with_it(secured: NamespaceClient, operator: OperatorProcess) -> None:
    secured.create("AccessPolicy", "everybody", {"acls": RULES})
    secured.create("User", "alice", {**SPEC, "aclsFrom": [{"name": "everybody"}, {"name": "readers"}]})
    eventually(
        lambda: secured.condition("User", "alice").get("reason") == "AccessPolicyUnusable",
        within_s=60,
        message=operator.daemon.log_tail,
    )
    assert "spec.aclsFrom: AccessPolicy readers does not exist" in secured.condition("User", "alice")["message"]
    assert [it for it in granted("alice") if it.startswith("topic orders")] == ["topic orders READ"]
    secured.create("AccessPolicy", "readers", {"acls": [{"allow": ["Read"], "topic": "more"}]})
    secured.wait_for_status("User", "alice")
    assert "topic more READ" in granted("alice")
    secured.patch_spec("AccessPolicy", "readers", {"acls": [{"allow": ["Write"], "topic": "more"}]})
    eventually(lambda: "topic more WRITE" in granted("alice"), within_s=30)
    assert "topic more READ" not in granted("alice")
    eventually(lambda: secured.get("AccessPolicy", "readers")["status"].get("users") == 1, within_s=30)
    assert kstatus(secured.get("AccessPolicy", "readers")) == "Current"
    secured.delete("AccessPolicy", "readers")
    eventually(lambda: "topic more WRITE" not in granted("alice"), within_s=30)
    assert "topic orders READ" in granted("alice")


def granted(user: str) -> list[str]:
    """The user's rules at the broker, each with resource type, resource name and operation."""
    admin = AdminClient(
        {
            "bootstrap.servers": f"{HOST}:9091",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": LOGIN.current.operator_user,
            "sasl.password": LOGIN.current.operator,
        }
    )
    wanted = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY),
        *(f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY),
    )
    return sorted(
        f"{it.restype.name.lower()} {it.name} {it.operation.name}" for it in admin.describe_acls(wanted).result(10)
    )
