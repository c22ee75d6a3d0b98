"""Mirrors of Apache Kafka over TLS, with client certificates and SASL; their error messages; and
the `ottla` command on the same brokers.
"""

import asyncio
import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.static.primitive import i8

from ottla_broker.wire.client import Client
from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import MIRROR, produce, seen, set_mirror, try_mirror, watermarks
from tests.e2e.secured_kafka import PASSWORD, PLAIN_PASSWORD, USER, SecuredKafka, secured_kafka
from tests.e2e.up_process import up_process
from tests.kube.certificates import create_client_certificate
from tests.waiting import eventually

TOPIC = "orders"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as found:
        admin = AdminClient({"bootstrap.servers": found.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        produce(found.broker.bootstrap, TOPIC, [f"{n}".encode() * 100 for n in range(500)])
        yield found


@pytest.fixture
def target() -> Iterator[BrokerProcess]:
    with run_ottla_broker() as broker:
        yield broker


def settings(source: SecuredKafka, protocol: str, **more: str) -> dict[str, str | None]:
    found = {
        "bootstrap.servers": source.at[protocol],
        "topics": TOPIC,
        "metadata.max.age.ms": "500",
        "security.protocol": protocol,
    }
    if "SSL" in protocol.split("_"):
        found["ssl.truststore.certificates"] = source.authority.certificate.read_text()
    return {**found, **{key.replace("_", "."): value for key, value in more.items()}}


def login(mechanism: str) -> dict[str, str]:
    password = PLAIN_PASSWORD if mechanism == "PLAIN" else PASSWORD
    return {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": password}


def is_copied(source: SecuredKafka, target: BrokerProcess) -> None:
    eventually(
        lambda: watermarks(target.bootstrap, TOPIC, 0) == watermarks(source.broker.bootstrap, TOPIC, 0),
        within_s=30,
        message=lambda: target.log_tail(3000),
    )
    assert seen(target.bootstrap, TOPIC, 0) == seen(source.broker.bootstrap, TOPIC, 0)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ],
)
def test_sasl_mechanisms(source: SecuredKafka, target: BrokerProcess, protocol: str, mechanism: str) -> None:
    set_mirror(target.bootstrap, "west", settings(source, protocol, **login(mechanism)))
    is_copied(source, target)
    assert PASSWORD not in target.log_tail() and PLAIN_PASSWORD not in target.log_tail()


def test_client_certificates(source: SecuredKafka, target: BrokerProcess) -> None:
    certificate, key = create_client_certificate(source.authority, "mirror")
    set_mirror(target.bootstrap, "west", settings(source, "SSL"))
    eventually(
        lambda: "mirror west: the source at" in target.log_tail(), within_s=30, message="it is refused without one"
    )
    shown = {"ssl.keystore.certificate.chain": certificate.read_text(), "ssl.keystore.key": key.read_text()}
    set_mirror(target.bootstrap, "west", shown)
    is_copied(source, target)
    target.restart()
    produce(source.broker.bootstrap, TOPIC, [b"after a restart"])
    is_copied(source, target)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl_password": "wrong"}, "Authentication failed"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "nobody"}, "Authentication failed"),
        ({"ssl_truststore_certificates": ""}, "unable to get local issuer certificate|self-signed certificate"),
    ],
)
def test_wrong_credentials_are_logged(
    source: SecuredKafka, target: BrokerProcess, change: dict[str, str], said: str
) -> None:
    set_mirror(target.bootstrap, "west", settings(source, "SASL_SSL", **(login("SCRAM-SHA-256") | change)))
    eventually(
        lambda: re.search(f"mirror west: the source at .*({said})", target.log_tail(), re.IGNORECASE),
        within_s=30,
        message=lambda: target.log_tail(3000),
    )
    right = login("SCRAM-SHA-256") | {"ssl_truststore_certificates": source.authority.certificate.read_text()}
    set_mirror(target.bootstrap, "west", settings(source, "SASL_SSL", **right))
    is_copied(source, target)


def test_sensitive_settings_are_never_shown(source: SecuredKafka, target: BrokerProcess) -> None:
    certificate, key = create_client_certificate(source.authority, "hidden")
    wish = settings(
        source,
        "SASL_SSL",
        **login("SCRAM-SHA-256"),
        ssl_keystore_certificate_chain=certificate.read_text(),
        ssl_keystore_key=key.read_text(),
    )
    set_mirror(target.bootstrap, "west", wish)
    shown = described(target.bootstrap)
    for name in ("sasl.password", "ssl.keystore.key"):
        assert shown[name].is_sensitive and shown[name].value is None
        assert [one.value for one in shown[name].synonyms] == [None]
    assert shown["sasl.username"].value == USER
    for change, why in (
        ({"sasl.password": None}, "security.protocol SASL_SSL needs sasl.password"),
        ({"sasl.mechanism": "GSSAPI"}, r"allowed: PLAIN, SCRAM-SHA-256"),
        ({"ssl.keystore.key": None}, "ssl.keystore.certificate.chain and ssl.keystore.key must be set together"),
        ({"ssl.keystore.key": "no key"}, "cannot be used"),
        ({"ssl.truststore.certificates": "no certificate"}, "cannot be used"),
    ):
        _, message = try_mirror(target.bootstrap, "west", change)
        assert message is not None and why in message, (change, message)
        assert "no key" not in message


def described(bootstrap: str) -> dict[str, Any]:
    async def ask() -> Any:
        resource = DescribeConfigsResource(resource_type=i8(MIRROR), resource_name="west", configuration_keys=None)
        async with Client.connect(bootstrap) as client:
            return await client.send(DescribeConfigsRequest(resources=(resource,), include_synonyms=True))

    return {one.name: one for one in asyncio.run(ask()).results[0].configs}


def test_secrets_in_files(source: SecuredKafka, tmp_path: Path) -> None:
    """`ottla up` with Secrets beside the Mirror; a password that changes in the file is used at
    once.
    """

    def objects(password: str) -> list[dict[str, Any]]:
        wish = {
            "source": {
                "bootstrap": source.at["SASL_SSL"],
                "tls": {"caSecretRef": {"name": "west-ca"}},
                "credentials": {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "west-login"}},
            },
            "target": {"clusterRef": {"name": "here"}},
            "topics": [TOPIC],
        }
        listeners = [{"name": "plain", "port": home.port}]
        ours: dict[str, Any] = {"apiVersion": "ottla.dev/v1alpha1"}
        secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret"}
        authority = source.authority.certificate.read_text()
        return [
            {**ours, "kind": "Cluster", "metadata": {"name": "here"}, "spec": {"replicas": 1, "listeners": listeners}},
            {**ours, "kind": "Mirror", "metadata": {"name": "west"}, "spec": wish},
            {**secret, "metadata": {"name": "west-ca"}, "stringData": {"ca.crt": authority}},
            {
                **secret,
                "metadata": {"name": "west-login"},
                "data": {"username": base64.b64encode(USER.encode()).decode()},
                "stringData": {"password": password},
            },
        ]

    with up_process(tmp_path) as home:
        home.write_resources(*objects("wrong, and not for the eyes of people"))
        home.start()
        home.wait_for_line("mirror west: set bootstrap.servers=")
        home.write_resources(*objects(PASSWORD))
        eventually(
            lambda: watermarks(home.bootstrap, TOPIC, 0) == watermarks(source.broker.bootstrap, TOPIC, 0),
            within_s=60,
            message=lambda: "\n".join(home.lines),
        )
        assert home.stop() == 0
        said = "\n".join(home.lines)
        assert PASSWORD not in said and "eyes of people" not in said
        assert "sasl.password=(hidden)" in said


def test_command_authenticates_to_secured_kafka(source: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    said = f"security.protocol=SASL_SSL\nssl.truststore.location={source.authority.certificate}\nsasl.mechanism=SCRAM-SHA-512\n"
    command = [sys.executable, "-m", "ottla_operator.cli", "topics", "list", "-b", source.at["SASL_SSL"], "-o", "json"]
    for password, code in ((PASSWORD, 0), ("wrong", 1)):
        escaped = password.replace("\\", "\\\\")
        file.write_text(f"{said}sasl.username={USER}\nsasl.password={escaped}\n")
        done = subprocess.run(
            [*command, "--command-config", str(file)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        assert (TOPIC in done.stdout) is (code == 0)
    assert re.fullmatch(r"ottla: .*\n", done.stderr) and password not in done.stderr


def test_metadata_log_shows_consumers_no_secrets(target: BrokerProcess) -> None:
    wish = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT"}
    hush = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "hush-hush"}
    set_mirror(target.bootstrap, "west", wish | hush)
    command = [sys.executable, "-m", "ottla_operator.cli", "cluster", "metadata", "-b", target.bootstrap, "-o", "json"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert '"sasl.username"' in said and "*********" in said and "hush-hush" not in said
    target.restart()
    shown = described(target.bootstrap)
    assert shown["sasl.password"].value is None and shown["sasl.password"].is_sensitive
