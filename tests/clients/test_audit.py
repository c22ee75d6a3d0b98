"""The audit log of a broker with logins and access rules: what real clients were refused, and what
they changed.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.static.primitive import i64Timedelta

from ottla_broker.wire.channel import open_channel
from ottla_broker.wire.client_security import ClientSecurity
from tests.brokers import BrokerProcess, add_listeners
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.e2e.java_tools import run_java_tool
from tests.waiting import eventually

WITHIN_S = 30.0
TOPIC = "audit"
DAY = timedelta(days=1)
BOB: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "bob",
    "sasl_password": "bobs",
}


@dataclass(frozen=True)
class AuditedBroker:
    """`broker.bootstrap` is a listener whose clients are super users; on `sasl` bob logs in."""

    broker: BrokerProcess
    sasl: str
    admin: AdminClient
    file: Path

    def events(self, **fields: object) -> list[dict[str, Any]]:
        """The events that have these fields."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []
        return [line for line in lines if fields.items() <= line.items()]

    def wait_for(self, **fields: object) -> dict[str, Any]:
        """Waits for an event with these fields, and returns the first; retries cause several.
        Raises AssertionError if there is none within WITHIN_S.
        """
        eventually(lambda: self.events(**fields), within_s=WITHIN_S, message=lambda: f"{fields} in {self.events()}")
        return self.events(**fields)[0]


@pytest.fixture(scope="module")
def audited(broker_kind: str, new_broker: NewBroker) -> Iterator[AuditedBroker]:
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka has no audit log")
    with new_broker(start=False) as broker:
        file = broker.folder / "audit.json"
        login = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"})["LOGIN"]
        broker.settings |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
            'required user_bob="bobs";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "audit.log.path": str(file),
            "audit.topic": TOPIC,
            "delegation.token.secret.key": "a secret of the brokers",
        }
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "the-admin"})
        yield AuditedBroker(broker, f"127.0.0.1:{login}", admin, file)


def test_line_of_a_refused_write_names_the_principal_the_host_and_the_topic(audited: AuditedBroker, name: str) -> None:
    rd.create_topic(audited.broker.bootstrap, name)
    allow(audited, name, AclOperation.DESCRIBE)
    with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        rd.produce(audited.sasl, name, rd.numbered_messages(0, 1), client_id="a-writer", **BOB)
    found = audited.wait_for(result="denied", clientId="a-writer", resource={"type": "TOPIC", "name": name})
    assert found.pop("time").endswith("Z") and found.pop("correlationId") > 0
    assert found == {
        "principal": "User:bob",
        "host": "127.0.0.1",
        "listener": "LOGIN",
        "clientId": "a-writer",
        "request": "Produce",
        "operation": "WRITE",
        "resource": {"type": "TOPIC", "name": name},
        "result": "denied",
    }


def test_topic_that_may_not_be_described_is_a_refusal_only_if_the_request_names_it(
    audited: AuditedBroker, name: str
) -> None:
    rd.create_topic(audited.broker.bootstrap, name)
    login = {"bootstrap.servers": audited.sasl} | rd.to_librdkafka_names(BOB)
    lists_all, names_one = f"{name}-all", f"{name}-one"
    assert name not in AdminClient(login | {"client.id": lists_all}).list_topics(timeout=WITHIN_S).topics
    AdminClient(login | {"client.id": names_one}).list_topics(name, timeout=WITHIN_S)
    assert audited.wait_for(clientId=names_one, request="Metadata")["operation"] == "DESCRIBE"
    assert audited.events(clientId=lists_all) == []  # the event of an earlier request would be here by now


def allow(audited: AuditedBroker, topic: str, operation: AclOperation) -> None:
    literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    entry = AclBinding(ResourceType.TOPIC, topic, literal, "User:bob", "*", operation, allowed)
    audited.admin.create_acls([entry])[entry].result(WITHIN_S)


def test_changes_are_lines_too(audited: AuditedBroker, name: str) -> None:
    def wait_for_change(request: str, operation: str, kind: str, what: str) -> dict[str, Any]:
        resource = {"type": kind, "name": what}
        return audited.wait_for(request=request, operation=operation, resource=resource, result="done")

    rd.create_topic(audited.broker.bootstrap, name)
    assert wait_for_change("CreateTopics", "CREATE", "TOPIC", name)["principal"] == "User:ANONYMOUS"
    allow(audited, name, AclOperation.READ)
    assert wait_for_change("CreateAcls", "CREATE_ACL", "TOPIC", f"{name} for User:bob")["clientId"] == "the-admin"
    audited.admin.incremental_alter_configs([rd.config_change(name, "retention.ms", "777000")])
    wait_for_change("IncrementalAlterConfigs", "ALTER_CONFIGS", "TOPIC", name)
    credential = UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret")
    audited.admin.alter_user_scram_credentials([credential])[name].result(WITHIN_S)
    wait_for_change("AlterUserScramCredentials", "ALTER_CREDENTIALS", "USER", name)
    run_java_tool(
        *("kafka.admin.ConfigCommand", "--bootstrap-server", audited.broker.bootstrap, "--alter"),
        *("--entity-type", "users", "--entity-name", name, "--add-config", "producer_byte_rate=1000000"),
    )
    wait_for_change("AlterClientQuotas", "ALTER_QUOTAS", "CLIENT_QUOTA", f"user {name}")
    for change, level in (("downgrade", 1), ("upgrade", 2)):
        run_java_tool(
            *("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", audited.broker.bootstrap),
            *(change, "--feature", f"transaction.version={level}"),
        )
        wait_for_change("UpdateFeatures", "ALTER", "FEATURE", f"transaction.version to {level}")
    audited.admin.delete_topics([name])[name].result(WITHIN_S)
    wait_for_change("DeleteTopics", "DELETE", "TOPIC", name)
    assert "secret" not in audited.file.read_text()


def test_change_that_failed_says_why(audited: AuditedBroker, name: str) -> None:
    rd.create_topic(audited.broker.bootstrap, name)
    with pytest.raises(ck.KafkaException, match="already exists"):
        rd.create_topic(audited.broker.bootstrap, name)
    audited.wait_for(request="CreateTopics", resource={"type": "TOPIC", "name": name}, result="TOPIC_ALREADY_EXISTS")


def test_failed_login_is_a_line_with_the_user_that_the_client_named(audited: AuditedBroker, name: str) -> None:
    wrong = {**BOB, "sasl_username": name[:40], "sasl_password": "a guess", "message_timeout_ms": 1500}
    with pytest.raises(ck.KafkaException, match="_MSG_TIMED_OUT"):
        rd.produce(audited.sasl, name, rd.numbered_messages(0, 1), **wrong)
    found = audited.wait_for(operation="LOGIN", resource={"type": "USER", "name": name[:40]})
    assert (found["principal"], found["listener"]) == ("User:ANONYMOUS", "LOGIN")
    assert (found["request"], found["result"]) == ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED")
    assert "a guess" not in audited.file.read_text()


def test_changes_of_delegation_tokens_are_lines_with_the_tokens_id(audited: AuditedBroker) -> None:
    async def send() -> tuple[str, bytes]:
        host, _, port = audited.sasl.partition(":")
        login = ClientSecurity("SASL_PLAINTEXT").with_login("PLAIN", "bob", "bobs")
        channel = await open_channel(host, int(port), "tokens", security=login)
        made = await channel.send(
            CreateDelegationTokenRequest(
                owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime=i64Timedelta.parse(DAY)
            )
        )
        for period in (DAY, -DAY):
            await channel.send(
                ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period=i64Timedelta.parse(period))
            )
        await channel.send(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period=i64Timedelta.parse(DAY)))
        return str(made.token_id), bytes(made.hmac)

    token_id, token_hmac = asyncio.run(send())
    audited.wait_for(operation="CREATE_TOKEN", resource=token_resource(f"{token_id} for User:bob"), result="done")
    audited.wait_for(operation="EXPIRE_TOKEN", resource=token_resource(""), result="DELEGATION_TOKEN_NOT_FOUND")
    expired = audited.events(operation="EXPIRE_TOKEN", resource=token_resource(token_id), result="done")
    assert [it["principal"] for it in expired] == ["User:bob", "User:bob"]
    assert token_hmac.hex() not in audited.file.read_text()


def token_resource(name: str) -> dict[str, str]:
    return {"type": "DELEGATION_TOKEN", "name": name}


def test_audit_topic_has_the_lines_of_the_file_and_none_about_itself(audited: AuditedBroker, name: str) -> None:
    rd.create_topic(audited.broker.bootstrap, name)
    audited.wait_for(request="CreateTopics", resource={"type": "TOPIC", "name": name})

    def lines_of_topic() -> list[Any]:
        return [json.loads(it or b"{}") for it in rd.values_of(rd.consume(audited.broker.bootstrap, TOPIC))]

    eventually(lambda: lines_of_topic() == audited.events(), within_s=WITHIN_S)
    assert not [line for line in lines_of_topic() if line["resource"]["name"] == TOPIC]


def test_no_line_is_lost_when_the_broker_stops(audited: AuditedBroker, name: str) -> None:
    topics = [f"{name}.{number}" for number in range(50)]
    for topic in topics:
        rd.create_topic(audited.broker.bootstrap, topic)
    assert audited.broker.stop() == 0
    created = {it["resource"]["name"] for it in audited.events(request="CreateTopics", result="done")}
    assert created >= set(topics)
    audited.broker.start()
    kept = [json.loads(it or b"{}") for it in rd.values_of(rd.consume(audited.broker.bootstrap, TOPIC))]
    assert {it["resource"]["name"] for it in kept if it["request"] == "CreateTopics"} >= set(topics)
