"""Delegation tokens with Kafka's own tool, and logins by them with librdkafka and Java's tools."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.brokers import BrokerProcess, add_listeners
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import messages
from tests.e2e.java_tools import run_java_tool
from tests.waiting import eventually

WITHIN_S = 30.0
MODULES = "org.apache.kafka.common.security"
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
USERS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class SaslBroker:
    """`broker.bootstrap` is a PLAINTEXT listener, whose clients are super users. `login` is one
    with SASL. `folder` has a client.properties for each user.
    """

    broker: BrokerProcess
    login: str
    folder: Path


@dataclass(frozen=True)
class Token:
    id: str
    hmac: str


@pytest.fixture(scope="module")
def secured(new_broker: NewBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    folder = tmp_path_factory.mktemp("tokens")
    with new_broker(start=False) as broker:
        # Kafka's controller refuses requests about tokens on a PLAINTEXT listener.
        ports = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"}, controller_protocol="SASL_PLAINTEXT")
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        scram = {
            f"listener.name.login.{it.lower()}.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;"
            for it in MECHANISMS
        }
        if broker.kind == "kafka":
            login = f'{MODULES}.plain.PlainLoginModule required username="admin" password="admin" user_admin="admin";'
            broker.settings |= {
                "listener.name.controller.plain.sasl.jaas.config": login,
                "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
            }
        broker.settings |= scram | {
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
            "listener.name.login.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
            "delegation.token.secret.key": "a secret of the brokers",
            "delegation.token.expiry.check.interval.ms": "1000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
        }
        broker.start()
        for name, password in USERS.items():
            module = f"{MODULES}.plain.PlainLoginModule"
            write_properties(folder / f"{name}.properties", "PLAIN", module, name, password)
        yield SaslBroker(broker, f"127.0.0.1:{ports['LOGIN']}", folder)


def write_properties(file: Path, mechanism: str, module: str, name: str, password: str, more: str = "") -> Path:
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{name}" password="{password}"{more};\n'
    )
    return file


def run_tool(secured: SaslBroker, user: str, *arguments: str, properties: Path | None = None) -> str:
    config = properties or secured.folder / f"{user}.properties"
    return run_java_tool(TOOL, "--bootstrap-server", secured.login, "--command-config", str(config), *arguments)


def create_token(secured: SaslBroker, user: str, *arguments: str) -> Token:
    output = run_tool(secured, user, "--create", "--max-life-time-period", "-1", *arguments)
    # A row of the table: id, HMAC, owner, …
    found = re.search(r"^([A-Za-z0-9_-]{22})\s+([A-Za-z0-9+/]{86}==)\s", output, re.MULTILINE)
    assert found is not None, output
    return Token(found[1], found[2])


def described_ids(secured: SaslBroker, user: str, owner: str) -> set[str]:
    """Ids of the tokens with this owner or renewer that the user may see. The tool requests no
    tokens unless it is given an owner.
    """
    output = run_tool(secured, user, "--describe", "--owner-principal", f"User:{owner}")
    return set(re.findall(r"^([A-Za-z0-9_-]{22})\s", output, re.MULTILINE))


def scram_properties(secured: SaslBroker, token: Token, mechanism: str) -> Path:
    module = f"{MODULES}.scram.ScramLoginModule"
    file = secured.folder / f"{token.id}-{mechanism}.properties"
    return write_properties(file, mechanism, module, token.id, token.hmac, ' tokenauth="true"')


def allow_alice_to_describe(secured: SaslBroker, topic: str) -> None:
    rd.allow(rd.admin_client(secured.broker.bootstrap), "alice", (ResourceType.TOPIC, topic, AclOperation.DESCRIBE))


def list_topics(secured: SaslBroker, properties: Path) -> list[str]:
    at = ("--bootstrap-server", secured.login, "--command-config", str(properties))
    return run_java_tool("org.apache.kafka.tools.TopicCommand", *at, "--list").split()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_with_a_token_may_do_what_its_owner_may_except_with_tokens(
    secured: SaslBroker, name: str, mechanism: str
) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    allow_alice_to_describe(secured, name)
    token = create_token(secured, "alice")
    properties = scram_properties(secured, token, mechanism)
    assert name in list_topics(secured, properties)
    with pytest.raises(AssertionError, match=r"DelegationTokenDisabled|not allowed|NotAllowed"):
        run_tool(secured, "", "--create", "--max-life-time-period", "-1", properties=properties)
    with pytest.raises(AssertionError, match=r"not allowed|NotAllowed"):
        run_tool(secured, "", "--describe", properties=properties)


def test_tokens_are_renewed_and_expired_by_owners_and_renewers(secured: SaslBroker) -> None:
    token = create_token(secured, "alice", "--renewer-principal", "User:bob")
    renewed = run_tool(secured, "bob", "--renew", "--hmac", token.hmac, "--renew-time-period", "1000000")
    assert "Completed renew operation" in renewed
    for action in ("--renew", "--expire"):
        period = ("--renew-time-period", "-1") if action == "--renew" else ("--expiry-time-period", "-1")
        with pytest.raises(AssertionError, match=r"OwnerMismatch|owner"):
            run_tool(secured, "carol", action, "--hmac", token.hmac, *period)
    with pytest.raises(AssertionError, match=r"NotFound|not found"):
        run_tool(secured, "alice", "--renew", "--hmac", "AAAA", "--renew-time-period", "-1")
    assert token.id in described_ids(secured, "alice", "alice") & described_ids(secured, "bob", "bob")
    run_tool(secured, "alice", "--expire", "--hmac", token.hmac, "--expiry-time-period", "-1")
    assert token.id not in described_ids(secured, "alice", "alice")
    with pytest.raises(AssertionError, match=r"SaslAuthentication|invalid credentials"):
        list_topics(secured, scram_properties(secured, token, "SCRAM-SHA-256"))


def test_tokens_of_others_need_access_rules(secured: SaslBroker) -> None:
    token = create_token(secured, "alice")
    assert token.id in described_ids(secured, "alice", "alice")
    assert described_ids(secured, "carol", "alice") == set()
    with pytest.raises(AssertionError, match=r"AuthorizationException|authorization failed"):
        create_token(secured, "carol", "--owner-principal", "User:alice")
    acl = ("--add", "--allow-principal", "User:carol", "--operation", "Describe", "--delegation-token", token.id)
    run_java_tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", secured.broker.bootstrap, *acl)
    assert described_ids(secured, "carol", "alice") == {token.id}
    assert described_ids(secured, "carol", "bob") == set()


def test_expired_token_is_removed_and_no_longer_accepted(secured: SaslBroker) -> None:
    token = create_token(secured, "bob")
    properties = scram_properties(secured, token, "SCRAM-SHA-512")
    list_topics(secured, properties)
    assert token.id in described_ids(secured, "bob", "bob")
    run_tool(secured, "bob", "--expire", "--hmac", token.hmac, "--expiry-time-period", "1")
    eventually(lambda: token.id not in described_ids(secured, "bob", "bob"), within_s=WITHIN_S)
    with pytest.raises(AssertionError, match=r"SaslAuthentication|invalid credentials"):
        list_topics(secured, properties)


def test_clients_without_a_login_get_no_token(secured: SaslBroker, tmp_path: Path) -> None:
    plaintext = tmp_path / "plaintext.properties"
    plaintext.write_text("security.protocol=PLAINTEXT\n")
    at = ("--bootstrap-server", secured.broker.bootstrap, "--command-config", str(plaintext))
    with pytest.raises(AssertionError, match=r"not allowed|NotAllowed"):
        run_java_tool(TOOL, *at, "--create", "--max-life-time-period", "-1")


def test_token_is_no_user(secured: SaslBroker, name: str) -> None:
    """Without the extension `tokenauth` the id is the name of a user, who does not exist."""
    token = create_token(secured, "alice")
    how: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": token.id,
        "sasl_password": token.hmac,
    }
    with pytest.raises(ck.KafkaException, match=r"_MSG_TIMED_OUT|_ALL_BROKERS_DOWN|_AUTHENTICATION"):
        rd.produce(secured.login, name, messages()[:1], message_timeout_ms=3000, **how)


def test_tokens_survive_a_restart(secured: SaslBroker, name: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    allow_alice_to_describe(secured, name)
    token = create_token(secured, "alice")
    secured.broker.stop()
    secured.broker.start()
    assert name in list_topics(secured, scram_properties(secured, token, "SCRAM-SHA-512"))
