"""Mirrors of Apache Kafka over TLS, with client certificates and SASL; their error messages; and
the `ottla` command on the same brokers.
"""

import asyncio
import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.static.primitive import i8

from ottla_broker.wire.client import Client
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import MIRROR, produce, read_records, read_watermarks, set_mirror, try_set_mirror
from tests.e2e.secured_kafka import PASSWORD, PLAIN_PASSWORD, USER, SecuredKafka, run_secured_kafka
from tests.e2e.up_process import prepare_up
from tests.kube.certificates import create_client_certificate
from tests.ottla_command import run_ottla
from tests.waiting import eventually

TOPIC = "orders"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with run_secured_kafka(tmp_path_factory.mktemp("secured")) as secured:
        admin = AdminClient({"bootstrap.servers": secured.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        produce(secured.broker.bootstrap, TOPIC, [f"{n}".encode() * 100 for n in range(500)])
        yield secured


@pytest.fixture
def target() -> Iterator[BrokerProcess]:
    with run_ottla_broker() as broker:
        yield broker


def mirror_settings(source: SecuredKafka, protocol: str, **additional: str) -> dict[str, str | None]:
    settings = {
        "bootstrap.servers": source.addresses[protocol],
        "topics": TOPIC,
        "metadata.max.age.ms": "500",
        "security.protocol": protocol,
    }
    if "SSL" in protocol.split("_"):
        settings["ssl.truststore.certificates"] = source.authority.certificate.read_text()
    return {**settings, **{key.replace("_", "."): value for key, value in additional.items()}}


def sasl_settings(mechanism: str) -> dict[str, str]:
    password = PLAIN_PASSWORD if mechanism == "PLAIN" else PASSWORD
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}


def wait_until_copied(source: SecuredKafka, target: BrokerProcess) -> None:
    eventually(
        lambda: read_watermarks(target.bootstrap, TOPIC, 0) == read_watermarks(source.broker.bootstrap, TOPIC, 0),
        within_s=30,
        message=lambda: target.log_tail(3000),
    )
    assert read_records(target.bootstrap, TOPIC, 0) == read_records(source.broker.bootstrap, TOPIC, 0)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ],
)
def test_source_with_sasl_is_mirrored(
    source: SecuredKafka, target: BrokerProcess, protocol: str, mechanism: str
) -> None:
    set_mirror(target.bootstrap, "west", mirror_settings(source, protocol, **sasl_settings(mechanism)))
    wait_until_copied(source, target)
    assert PASSWORD not in target.log_tail() and PLAIN_PASSWORD not in target.log_tail()


def test_source_that_requires_client_certificates_is_mirrored(source: SecuredKafka, target: BrokerProcess) -> None:
    certificate, key = create_client_certificate(source.authority, "mirror")
    set_mirror(target.bootstrap, "west", mirror_settings(source, "SSL"))
    eventually(
        lambda: "mirror west: the source at" in target.log_tail(),
        within_s=30,
        message="an error without a client certificate",
    )
    keystore = {"ssl.keystore.certificate.chain": certificate.read_text(), "ssl.keystore.key": key.read_text()}
    set_mirror(target.bootstrap, "west", keystore)
    wait_until_copied(source, target)
    target.restart()
    produce(source.broker.bootstrap, TOPIC, [b"after a restart"])
    wait_until_copied(source, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sasl_password": "wrong"}, "Authentication failed"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "nobody"}, "Authentication failed"),
        ({"ssl_truststore_certificates": ""}, "unable to get local issuer certificate|self-signed certificate"),
    ],
)
def test_wrong_credentials_are_logged(
    source: SecuredKafka, target: BrokerProcess, change: dict[str, str], message: str
) -> None:
    set_mirror(
        target.bootstrap, "west", mirror_settings(source, "SASL_SSL", **(sasl_settings("SCRAM-SHA-256") | change))
    )
    eventually(
        lambda: re.search(f"mirror west: the source at .*({message})", target.log_tail(), re.IGNORECASE),
        within_s=30,
        message=lambda: target.log_tail(3000),
    )
    valid = sasl_settings("SCRAM-SHA-256") | {"ssl_truststore_certificates": source.authority.certificate.read_text()}
    set_mirror(target.bootstrap, "west", mirror_settings(source, "SASL_SSL", **valid))
    wait_until_copied(source, target)


def test_sensitive_settings_are_never_shown_and_invalid_ones_are_rejected(
    source: SecuredKafka, target: BrokerProcess
) -> None:
    certificate, key = create_client_certificate(source.authority, "hidden")
    settings = mirror_settings(
        source,
        "SASL_SSL",
        **sasl_settings("SCRAM-SHA-256"),
        ssl_keystore_certificate_chain=certificate.read_text(),
        ssl_keystore_key=key.read_text(),
    )
    set_mirror(target.bootstrap, "west", settings)
    described = describe_mirror(target.bootstrap)
    for name in ("sasl.password", "ssl.keystore.key"):
        assert described[name].is_sensitive and described[name].value is None
        assert [it.value for it in described[name].synonyms] == [None]
    assert described["sasl.username"].value == USER
    for change, reason in (
        ({"sasl.password": None}, "security.protocol SASL_SSL needs sasl.password"),
        ({"sasl.mechanism": "GSSAPI"}, r"allowed: PLAIN, SCRAM-SHA-256"),
        ({"ssl.keystore.key": None}, "ssl.keystore.certificate.chain and ssl.keystore.key must be set together"),
        ({"ssl.keystore.key": "no key"}, "cannot be used"),
        ({"ssl.truststore.certificates": "no certificate"}, "cannot be used"),
    ):
        _, message = try_set_mirror(target.bootstrap, "west", change)
        assert message is not None and reason in message, (change, message)
        assert "no key" not in message


def describe_mirror(bootstrap: str) -> dict[str, Any]:
    """Configs of mirror `west` by name."""

    async def send() -> Any:
        resource = DescribeConfigsResource(resource_type=i8(MIRROR), resource_name="west", configuration_keys=None)
        async with Client.connect(bootstrap) as client:
            return await client.send(DescribeConfigsRequest(resources=(resource,), include_synonyms=True))

    return {it.name: it for it in asyncio.run(send()).results[0].configs}


def test_password_that_is_edited_in_a_file_is_used(source: SecuredKafka, tmp_path: Path) -> None:
    """`ottla up` with Secrets in the files, first with a wrong password."""

    def objects(password: str) -> list[dict[str, Any]]:
        spec = {
            "source": {
                "bootstrap": source.addresses["SASL_SSL"],
                "tls": {"caSecretRef": {"name": "west-ca"}},
                "credentials": {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "west-login"}},
            },
            "target": {"clusterRef": {"name": "here"}},
            "topics": [TOPIC],
        }
        listeners = [{"name": "plain", "port": up.port}]
        resource: dict[str, Any] = {"apiVersion": "ottla.dev/v1alpha1"}
        secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret"}
        authority = source.authority.certificate.read_text()
        return [
            {
                **resource,
                "kind": "Cluster",
                "metadata": {"name": "here"},
                "spec": {"replicas": 1, "listeners": listeners},
            },
            {**resource, "kind": "Mirror", "metadata": {"name": "west"}, "spec": spec},
            {**secret, "metadata": {"name": "west-ca"}, "stringData": {"ca.crt": authority}},
            {
                **secret,
                "metadata": {"name": "west-login"},
                "data": {"username": base64.b64encode(USER.encode()).decode()},
                "stringData": {"password": password},
            },
        ]

    with prepare_up(tmp_path) as up:
        up.write_resources(*objects("wrong password"))
        up.start()
        up.wait_for_line("mirror west: set bootstrap.servers=")
        up.write_resources(*objects(PASSWORD))
        eventually(
            lambda: read_watermarks(up.bootstrap, TOPIC, 0) == read_watermarks(source.broker.bootstrap, TOPIC, 0),
            within_s=60,
            message=lambda: "\n".join(up.lines),
        )
        assert up.stop() == 0
        output = "\n".join(up.lines)
        assert PASSWORD not in output and "wrong password" not in output
        assert "sasl.password=(hidden)" in output


def test_command_authenticates_to_secured_kafka(source: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    settings = (
        f"security.protocol=SASL_SSL\nssl.truststore.location={source.authority.certificate}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
    )
    arguments = ("topics", "list", "-b", source.addresses["SASL_SSL"], "-o", "json", "--command-config", str(file))
    for password, code in ((PASSWORD, 0), ("wrong", 1)):
        escaped = password.replace("\\", "\\\\")
        file.write_text(f"{settings}sasl.username={USER}\nsasl.password={escaped}\n")
        result = run_ottla(*arguments)
        assert result.returncode == code, result.stderr
        assert (TOPIC in result.stdout) is (code == 0)
    assert re.fullmatch(r"ottla: .*\n", result.stderr) and password not in result.stderr


def test_metadata_log_shows_consumers_no_secrets(target: BrokerProcess) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "hush-hush"}
    set_mirror(target.bootstrap, "west", settings | sasl)
    shown = run_ottla("cluster", "metadata", "-b", target.bootstrap, "-o", "json")
    shown.check_returncode()
    output = shown.stdout
    assert '"sasl.username"' in output and "*********" in output and "hush-hush" not in output
    target.restart()
    described = describe_mirror(target.bootstrap)
    assert described["sasl.password"].value is None and described["sasl.password"].is_sensitive
