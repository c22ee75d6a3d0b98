"""The schema registry behind logins and access rules, and over TLS."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from ottla_spark.schema_registry import registry_of
from tests.clients.conftest import NewBroker
from tests.clients.test_sasl import SCRAM, SaslBroker, acl, create_acls, login_settings, set_password
from tests.kube.certificates import create_certificate_authority, create_client_certificate
from tests.ports import free_port

INT = Schema('"int"', "AVRO")


@dataclass(frozen=True)
class SecuredRegistry:
    url: str
    cluster: SaslBroker

    def client(self, name: str, password: str) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.url, "basic.auth.user.info": f"{name}:{password}"})


@pytest.fixture(scope="module")
def secured_registry(new_broker: NewBroker) -> Iterator[SecuredRegistry]:
    registry, login = free_port(), free_port()
    with new_broker(start=False) as broker:
        broker.settings |= {
            **login_settings(broker.port, login),
            "super.users": "User:ANONYMOUS",
            "schema.registry.listener": f"127.0.0.1:{registry}",
            "schema.registry.security.listener": "LOGIN",
        }
        broker.start()
        cluster = SaslBroker(broker, f"127.0.0.1:{login}", AdminClient({"bootstrap.servers": broker.bootstrap}))
        set_password(cluster, "alice", "secret", SCRAM["SCRAM-SHA-512"])
        yield SecuredRegistry(f"http://127.0.0.1:{registry}", cluster)


def test_a_client_logs_in_by_name_and_password(secured_registry: SecuredRegistry) -> None:
    for name, password, status in (
        ("alice", "secret", 200),
        ("bob", "bobs", 200),
        ("alice", "wrong", 401),
        ("eve", "", 401),
    ):
        answer = requests.get(f"{secured_registry.url}/subjects", auth=(name, password), timeout=30)
        assert answer.status_code == status, name
    refused = requests.get(f"{secured_registry.url}/subjects", timeout=30)
    assert refused.status_code == 401 and refused.headers["WWW-Authenticate"].startswith("Basic")


def test_access_rules_of_topics_hold_for_their_subjects(secured_registry: SecuredRegistry) -> None:
    alice, bob = secured_registry.client("alice", "secret"), secured_registry.client("bob", "bobs")
    calls: list[Callable[[], object]] = [
        lambda: alice.register_schema("orders-value", INT),
        lambda: alice.get_versions("orders-value"),
        lambda: alice.set_compatibility("orders-value", "NONE"),
        lambda: alice.set_compatibility(level="NONE"),
        lambda: alice.delete_subject("orders-value"),
    ]
    for call in calls:
        with pytest.raises(SchemaRegistryError) as refused:
            call()
        assert refused.value.http_status_code == 403
    create_acls(secured_registry.cluster, acl(ResourceType.TOPIC, "orders", AclOperation.WRITE))
    create_acls(secured_registry.cluster, acl(ResourceType.TOPIC, "orders", AclOperation.READ, user="bob"))
    schema_id = alice.register_schema("orders-value", INT)
    assert bob.get_schema(schema_id).schema_str == '"int"' and bob.get_subjects() == ["orders-value"]
    with pytest.raises(SchemaRegistryError) as refused:
        bob.register_schema("orders-value", Schema('"long"', "AVRO"))
    assert refused.value.http_status_code == 403 and "orders" in str(refused.value)
    audit = secured_registry.cluster.broker.log_tail()
    events = [line for line in audit.splitlines() if "POST /subjects/{subject}/versions" in line]
    assert any('"principal":"User:bob"' in line and '"result":"denied"' in line for line in events)
    assert any('"principal":"User:alice"' in line and '"result":"done"' in line for line in events)


def test_the_registry_has_the_tls_of_its_listener(new_broker: NewBroker, tmp_path: Path) -> None:
    authority = create_certificate_authority(tmp_path / "authority", ["127.0.0.1"], ["localhost"])
    registry, tls, http = free_port(), free_port(), free_port()
    certificate, key = create_client_certificate(authority, "alice")
    with new_broker(start=False) as broker:
        broker.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},TLS://127.0.0.1:{tls}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.write_keystore()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.tls.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:CN=alice",
            "schema.registry.listener": f"127.0.0.1:{registry}",
            "schema.registry.security.listener": "TLS",
            "http.listener": f"127.0.0.1:{http}",
            "http.security.listener": "TLS",
        }
        broker.start()
        assert requests.get(f"https://127.0.0.1:{http}/readyz", verify=str(authority.certificate), timeout=30).ok
        url, trusted = f"https://127.0.0.1:{registry}", str(authority.certificate)
        body = {"schema": INT.schema_str}
        files = str(certificate), str(key)
        answer = requests.post(f"{url}/subjects/a/versions", json=body, verify=trusted, cert=files, timeout=30)
        assert answer.json() == {"id": 1}
        with pytest.raises(requests.exceptions.RequestException):
            requests.get(f"{url}/subjects", verify=trusted, timeout=30)
        pipeline = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.certificate.read_text(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate.read_text(),
            "ssl.keystore.key": key.read_text(),
        }
        assert registry_of(url, pipeline).register("b", INT.schema_str, "AVRO") == 1
