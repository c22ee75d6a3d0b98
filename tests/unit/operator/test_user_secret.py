"""The Secret that is written for the clients of a user."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from ottla_broker.security.scram import ScramMechanism
from ottla_broker.wire.properties import parse_properties
from ottla_operator.cli.command_config import read_security
from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.kinds import USER
from ottla_operator.kube.user_secrets import write_user_secret
from ottla_operator.plan.scram_login import generate_password
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable
from ottla_operator.plan.user_secret import (
    ClientAccess,
    certificate_secret,
    check_password,
    client_access,
    find_listener,
    is_password_set,
    scram_secret,
)
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.user import User
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi

PASSWORDS = ["plain", 'quo"te', "back\\slash", " leading", "ä€😀", "a=b,c;d#e!f:g"]
ACCESS = ClientAccess("b1:9094,b2:9094", "SASL_PLAINTEXT")


@pytest.mark.parametrize("password", PASSWORDS)
def test_client_properties_hold_any_password(password: str, tmp_path: Path) -> None:
    data = scram_secret('al"ice', password, ScramMechanism.SHA_256, ACCESS)
    assert data["client.properties"].isascii(), "Kafka reads Latin-1"
    file = tmp_path / "client.properties"
    file.write_text(data["client.properties"])
    security = read_security(file)
    assert (security.mechanism, security.username, security.password) == ("SCRAM-SHA-256", 'al"ice', password)
    found = {it.key: it.value for it in parse_properties(data["client.properties"])}
    assert found["bootstrap.servers"] == "b1:9094,b2:9094"
    assert f"sasl.password={password}\n" in data["librdkafka.properties"]


def test_edited_secret_is_not_taken_for_what_brokers_have() -> None:
    data = scram_secret("alice", "first", ScramMechanism.SHA_512, ACCESS)
    assert is_password_set(data, "alice", "first", ScramMechanism.SHA_512)
    assert not is_password_set({**data, "password": "edited"}, "alice", "edited", ScramMechanism.SHA_512)
    assert not is_password_set(data, "alice", "first", ScramMechanism.SHA_256)
    assert not is_password_set({}, "alice", "first", ScramMechanism.SHA_512)


@pytest.mark.parametrize("password", ["", "two\nlines", "line end\n", "nul\0", "x" * 1025])
def test_password_that_clients_could_not_carry_is_refused_without_naming_it(password: str) -> None:
    with pytest.raises(SecretUnusable) as refused:
        check_password(password, "key of Secret a")
    assert str(refused.value).startswith("key of Secret a ")
    assert not password or password not in str(refused.value)


def test_generated_passwords_differ_and_need_no_quotes() -> None:
    made = {generate_password() for _ in range(20)}
    assert len(made) == 20
    assert all(len(it) == 32 and it.replace("-", "").replace("_", "").isalnum() for it in made)


def test_users_get_the_listener_of_their_authentication() -> None:
    listeners = [
        {"name": "mutual", "port": 1, "tls": True, "authentication": "TLS"},
        {"name": "outside", "port": 2, "tls": True, "authentication": "SCRAM", "type": "LoadBalancer"},
        {"name": "inside", "port": 3, "tls": True, "authentication": "SCRAM"},
    ]
    cluster = Cluster.parse(samples.cluster(listeners=listeners, tls={"secretRef": {"name": "certificates"}}))

    def listener_of(type_: str) -> str | None:
        found = find_listener(cluster, User.parse(samples.user(authentication={"type": type_})))
        return None if found is None else found.name

    assert (listener_of("SCRAM-SHA-256"), listener_of("TLS"), listener_of("External")) == ("inside", "mutual", None)
    inside = cluster.listeners[2]
    tls = ObservedSecret({"ca.crt": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"}, "1")
    access = client_access(inside, {"inside": "b:3"}, tls)
    assert access is not None and access.protocol == "SASL_SSL"
    assert client_access(inside, {"outside": "b:2"}, tls) is None, "the address is not known yet"
    data = scram_secret("alice", "p", ScramMechanism.SHA_512, access)
    found = {it.key: it.value for it in parse_properties(data["client.properties"])}
    assert found["ssl.truststore.certificates"] == tls.values["ca.crt"].strip()
    assert data["ca.crt"] == tls.values["ca.crt"]
    data = certificate_secret("CN=alice", "certificate\n", "key\n", access)
    assert not {"password", "sasl.jaas.config", "sasl.mechanism"} & data.keys()
    assert (data["username"], data["user.crt"], data["user.key"]) == ("CN=alice", "certificate\n", "key\n")
    assert "ssl.certificate.location=user.crt\nssl.key.location=user.key\n" in data["librdkafka.properties"]


def test_a_secret_that_the_api_server_rejects_blocks_its_user_alone() -> None:
    api = FakeApi(reject=lambda write: ApiError(403, "exceeded quota: secrets=10"))
    user = {
        "apiVersion": USER.api,
        "kind": "User",
        "metadata": {"name": "alice", "namespace": "events", "uid": "u1"},
        "spec": {"clusterRef": {"name": "demo"}},
    }
    with pytest.raises(Blocked, match="exceeded quota") as blocked:
        asyncio.run(write_user_secret(cast(ApiClient, api), user, "alice", {"username": "alice"}))
    assert blocked.value.readiness.reason == "RejectedByApiServer"
