"""Clients that log in by OAUTHBEARER with access tokens of a real OIDC server: librdkafka,
kafka-python, aiokafka and Java's tools.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as TokenProvider

from tests.brokers import BrokerProcess
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import messages
from tests.e2e.java_tools import run_java_tool
from tests.oidc_server import AUDIENCE, CLIENTS, LOGIN_MODULE, OidcServer, listener_settings, new_key, run_oidc_server
from tests.ports import free_port
from tests.waiting import eventually

jwt = pytest.importorskip("jwt", reason="PyJWT, a dependency of the broker, is not installed")

WITHIN_S = 30.0


@dataclass(frozen=True)
class OAuthBroker:
    """`broker.bootstrap` is a PLAINTEXT listener, whose clients are super users. `login` is one
    with OAUTHBEARER.
    """

    broker: BrokerProcess
    login: str
    oidc: OidcServer


@pytest.fixture(scope="module")
def secured(new_broker: NewBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthBroker]:
    with (
        run_oidc_server(tmp_path_factory.mktemp("oidc"), [new_key("first")]) as oidc,
        new_broker(start=False) as broker,
    ):
        if broker.kind == "kafka":
            pytest.skip("Kafka allows token endpoints only by a system property of its JVM")
        login = f"127.0.0.1:{free_port()}"
        broker.settings |= {
            **listener_settings(broker.bootstrap, login, oidc),
            "sasl.oauthbearer.expected.issuer": oidc.url,
        }
        broker.start()
        yield OAuthBroker(broker, login, oidc)


def oidc_settings(secured: OAuthBroker, client: str = "alice") -> dict[str, Any]:
    """Settings of librdkafka, which fetches tokens itself."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_method": "oidc",
        "sasl_oauthbearer_client_id": client,
        "sasl_oauthbearer_client_secret": CLIENTS[client],
        "sasl_oauthbearer_token_endpoint_url": secured.oidc.token_url,
        "sasl_oauthbearer_scope": "produce consume",
    }


def create_topic_for_alice(secured: OAuthBroker, topic: str) -> None:
    """Creates a topic that alice may produce to and consume."""
    rd.create_topic(secured.broker.bootstrap, topic, 1)
    rd.allow_to_produce_and_consume(rd.admin_client(secured.broker.bootstrap), "alice", topic)


def test_librdkafka_logs_in_with_tokens_that_it_fetches(secured: OAuthBroker, name: str) -> None:
    create_topic_for_alice(secured, name)
    how = oidc_settings(secured)
    assert rd.produce(secured.login, name, messages(), **how) == list(range(50))
    assert rd.to_messages(rd.consume(secured.login, name, 50, **how)) == messages()
    with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        rd.produce(secured.login, name, rd.numbered_messages(0, 1), **oidc_settings(secured, "bob"))


def test_librdkafka_logs_in_with_a_token_of_its_application(secured: OAuthBroker, name: str) -> None:
    create_topic_for_alice(secured, name)

    def give_token(_: str) -> tuple[str, float]:
        token, lifetime_s = secured.oidc.access_token("alice")
        return token, time.time() + lifetime_s

    how: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "oauth_cb": give_token,
    }
    assert rd.produce(secured.login, name, messages(), **how) == list(range(50))


def test_kafka_python_logs_in_with_a_token(secured: OAuthBroker, name: str) -> None:
    create_topic_for_alice(secured, name)

    class Tokens(TokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return secured.oidc.access_token("alice")[0]

    producer = KafkaProducer(
        bootstrap_servers=secured.login,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    with closing(producer):
        assert producer.send(name, b"one").get(WITHIN_S).offset == 0


def test_aiokafka_logs_in_with_a_token(secured: OAuthBroker, name: str) -> None:
    create_topic_for_alice(secured, name)

    class Tokens(AioTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return secured.oidc.access_token("alice")[0]

    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.login,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait(name, b"one")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(asyncio.wait_for(produce(), WITHIN_S)) == 0


def test_java_tool_reads_a_token_from_a_file(
    secured: OAuthBroker, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a pod does with its service account's token, which is mounted as a file."""
    create_topic_for_alice(secured, name)
    (tmp_path / "token").write_text(secured.oidc.access_token("alice")[0])
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={LOGIN_MODULE} required;\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path}/token\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{tmp_path}/token")
    at = ("--bootstrap-server", secured.login, "--command-config", str(config))
    listed = run_java_tool("org.apache.kafka.tools.TopicCommand", *at, "--list")
    assert name in listed.split()


def test_invalid_tokens_are_rejected_and_the_log_says_why(secured: OAuthBroker) -> None:
    errors: list[str] = []

    def give_token(_: str) -> tuple[str, float]:
        key = jwt.PyJWK(new_key("other")).key
        claims = {"sub": "alice", "iat": int(time.time()), "exp": int(time.time()) + 60, "aud": AUDIENCE}
        return jwt.encode(claims, key, algorithm="RS256", headers={"kid": "other"}), time.time() + 60

    producer = ck.Producer(
        {
            "bootstrap.servers": secured.login,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": give_token,
            "error_cb": lambda error: errors.append(error.str()),
        }
    )

    def is_rejected() -> bool:
        producer.poll(0.1)
        return any('{"status":"invalid_token"}' in error for error in errors)

    eventually(is_rejected, within_s=WITHIN_S)
    eventually(lambda: "rejecting a token: 0 keys have id 'other'" in secured.broker.log_tail())
    assert "Traceback" not in secured.broker.log_tail()


def test_new_keys_of_the_issuer_are_found_and_an_outage_is_survived(secured: OAuthBroker, name: str) -> None:
    create_topic_for_alice(secured, name)
    how = oidc_settings(secured)
    former_keys = json.loads(secured.oidc.keys_file.read_text())["keys"]
    secured.oidc.restart_with_keys([new_key("second"), *former_keys])
    assert rd.produce(secured.login, name, rd.numbered_messages(0, 1), **how) == [0]
    token, lifetime_s = secured.oidc.access_token("alice")
    secured.oidc.daemon.stop()
    try:
        with_token: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + lifetime_s),
        }
        assert rd.produce(secured.login, name, rd.numbered_messages(0, 1), **with_token) == [1]
    finally:
        secured.oidc.start()
