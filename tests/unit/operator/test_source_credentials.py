"""Credentials of a mirror's source: from Secrets to settings, and redacted in messages."""

import base64
from pathlib import Path
from typing import Any

import pytest

from ottla_operator.local import secrets as local
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.plan.mirror import plan_mirror_changes
from ottla_operator.plan.source_credentials import (
    HIDDEN_SETTINGS,
    ObservedSecret,
    SecretUnusable,
    credential_settings,
    redacted_changes,
    secret_contents,
    secret_names,
    secret_values,
)
from ottla_operator.resources.mirror import Mirror

SECRETS = {
    "ca": ObservedSecret({"ca.crt": "-----BEGIN CERTIFICATE-----"}, "1"),
    "login": ObservedSecret({"username": "u", "password": "hush"}, "2"),
    "cert": ObservedSecret({"tls.crt": "-----BEGIN C", "tls.key": "-----BEGIN K"}, "3"),
    "incomplete": ObservedSecret({"username": "u"}, "4"),
    "blank": ObservedSecret({"username": "u", "password": ""}, "5"),
}


def mirror(**source: Any) -> Mirror:
    spec = {"source": {"bootstrap": "w:9092", **source}, "target": {"clusterRef": {"name": "here"}}, "topics": ["*"]}
    return Mirror.parse(
        {"apiVersion": "ottla.dev/v1alpha1", "kind": "Mirror", "metadata": {"name": "west"}, "spec": spec}
    )


def credentials(mechanism: str, name: str) -> dict[str, Any]:
    return {"mechanism": mechanism, "secretRef": {"name": name}}


CA = {"caSecretRef": {"name": "ca"}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({}, {}),
        ({"tls": {}}, {"security.protocol": "SSL"}),
        (
            {"tls": CA},
            {
                "security.protocol": "SSL",
                "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
                "credentials.version": "1",
            },
        ),
        (
            {"tls": {}, "credentials": credentials("TLS", "cert")},
            {
                "security.protocol": "SSL",
                "ssl.keystore.certificate.chain": "-----BEGIN C",
                "ssl.keystore.key": "-----BEGIN K",
                "credentials.version": "3",
            },
        ),
        (
            {"tls": CA, "credentials": credentials("SCRAM-SHA-512", "login")},
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "u",
                "sasl.password": "hush",
                "credentials.version": "1 2",
            },
        ),
        (
            {"credentials": credentials("SCRAM-SHA-256", "login")},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "u",
                "sasl.password": "hush",
                "credentials.version": "2",
            },
        ),
    ],
)
def test_secrets_become_settings_of_the_mirror(source: dict[str, Any], expected: dict[str, str]) -> None:
    assert credential_settings(mirror(**source), SECRETS) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "Secret nothing does not exist"),
        ("incomplete", "Secret incomplete has no password; it has: username"),
        ("blank", "password of Secret blank is empty"),
    ],
)
def test_a_missing_secret_or_value_is_named(name: str, message: str) -> None:
    with pytest.raises(SecretUnusable, match=message):
        credential_settings(mirror(credentials=credentials("PLAIN", name)), SECRETS)


def test_the_secret_of_a_user_with_a_certificate_can_be_the_secret_of_a_mirror() -> None:
    secrets = {**SECRETS, "billing": ObservedSecret({"user.crt": "C", "user.key": "K", "username": "CN=b"}, "9")}
    found = credential_settings(mirror(tls=CA, credentials=credentials("TLS", "billing")), secrets)
    assert (found["ssl.keystore.certificate.chain"], found["ssl.keystore.key"]) == ("C", "K")
    assert found["security.protocol"] == "SSL"


def test_secrets_are_set_once_per_version_and_removed_with_their_field() -> None:
    source = mirror(tls=CA, credentials=credentials("PLAIN", "login"))
    assert secret_names(source) == ["ca", "login"]
    expected = {"topics": "*", **credential_settings(source, SECRETS)}
    first = plan_mirror_changes(expected, {})
    assert first["sasl.password"] == "hush"
    observed = {name: "" if name in HIDDEN_SETTINGS else value for name, value in expected.items()}
    assert plan_mirror_changes(expected, observed) == {}
    newer = {**SECRETS, "login": ObservedSecret({"username": "u", "password": "louder"}, "9")}
    rotated = plan_mirror_changes({"topics": "*", **credential_settings(source, newer)}, observed)
    assert rotated == {"sasl.password": "louder", "credentials.version": "1 9"}
    assert set(plan_mirror_changes({"topics": "*"}, observed)) == set(expected) - {"topics"}
    assert redacted_changes({**first, "groups": None}) == (
        "topics=*, ssl.truststore.certificates=(certificates), sasl.mechanism=PLAIN, sasl.username=u, "
        "sasl.password=(hidden), "
        "security.protocol=SASL_SSL, credentials.version=1 2, groups unset"
    )
    assert "hush" not in repr(SECRETS["login"])


FILE = """
apiVersion: v1
kind: Secret
metadata: {name: login}
data: {username: dQ==}
stringData: {password: "hush"}
---
apiVersion: v1
kind: Namespace
metadata: {name: ignored}
"""


def test_secrets_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FILE)
    (document,) = read_files([tmp_path])
    found = local.read_secrets([document.data])
    assert found["login"].values == {"username": "u", "password": "hush"}
    again = local.read_secrets([{**document.data, "stringData": {"password": "other"}}])
    assert again["login"].version != found["login"].version == local.read_secrets([document.data])["login"].version
    (tmp_path / "a.yaml").write_text(FILE.replace("dQ==", "hush!"))
    with pytest.raises(InvalidFiles, match=r"a.yaml:5: .*Secret login: data is not base64-encoded") as caught:
        read_files([tmp_path])
    assert "hush" not in str(caught.value)
    data = {key: base64.b64encode(it).decode() for key, it in {"store": b"0\x82", "text": "ä".encode()}.items()}
    secret = {"metadata": {"name": "x"}, "data": data}
    assert secret_values(secret) == {"text": "ä"}
    assert secret_contents(secret) == {"store": b"0\x82", "text": "ä"}
