"""Clients that log in by SASL, and access control entries: librdkafka, kafka-python, aiokafka and
Java's tools.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer

from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client_security import ClientSecurity
from tests.brokers import BrokerProcess, add_listeners
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import messages
from tests.e2e.java_tools import run_java_tool
from tests.waiting import eventually, eventually_async

WITHIN_S = 30.0
PASSWORD = "p=ss,w0rd ä"
PLAIN_PASSWORD = "p=ss,w0rd"  # in a properties file, which Kafka reads as Latin-1
MODULES = "org.apache.kafka.common.security"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
MECHANISMS = ("PLAIN", *SCRAM)


@dataclass(frozen=True)
class SaslBroker:
    """`broker.bootstrap` is a PLAINTEXT listener, whose clients are super users. `sasl` is one
    with SASL.
    """

    broker: BrokerProcess
    sasl: str
    admin: AdminClient


def login_settings(open_port: int, login_port: int) -> dict[str, str]:
    """Settings of a broker with access rules and two listeners: an open one, and LOGIN with PLAIN,
    by which bob logs in, and SCRAM-SHA-512.
    """
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{open_port},LOGIN://127.0.0.1:{login_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_bob="bobs";',
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }


@pytest.fixture(scope="module")
def secured(new_broker: NewBroker) -> Iterator[SaslBroker]:
    with new_broker(start=False) as broker:
        ports = add_listeners(broker, {"LOGIN": "SASL_PLAINTEXT"})
        users = f'user_alice="{PLAIN_PASSWORD}" user_bob="bobs"'
        broker.settings |= {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.login.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {users};",
            **{
                f"listener.name.login.{it.lower()}.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;"
                for it in SCRAM
            },
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        secured = SaslBroker(broker, f"127.0.0.1:{ports['LOGIN']}", admin)
        for mechanism in SCRAM.values():
            set_password(secured, "alice", PASSWORD, mechanism)
        yield secured


def set_password(secured: SaslBroker, user: str, password: str, mechanism: ScramMechanism) -> None:
    change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
    for done in secured.admin.alter_user_scram_credentials([change]).values():
        done.result(WITHIN_S)


def login(mechanism: str, user: str = "alice", password: str = "") -> dict[str, Any]:
    """Settings of librdkafka. The default of `password` is that of alice."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password or password_of_alice(mechanism),
    }


def password_of_alice(mechanism: str) -> str:
    return PLAIN_PASSWORD if mechanism == "PLAIN" else PASSWORD


def acl(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    user: str = "alice",
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def create_acls(secured: SaslBroker, *bindings: AclBinding) -> None:
    for done in secured.admin.create_acls(list(bindings)).values():
        done.result(WITHIN_S)


def delete_acls(secured: SaslBroker, *bindings: AclBinding) -> list[AclBinding]:
    filters = [
        AclBindingFilter(
            it.restype, it.name, it.resource_pattern_type, it.principal, it.host, it.operation, it.permission_type
        )
        for it in bindings
    ]
    return [found for done in secured.admin.delete_acls(filters).values() for found in done.result(WITHIN_S)]


def allow_everything_on(secured: SaslBroker, topic: str, user: str = "alice") -> None:
    create_acls(
        secured,
        acl(ResourceType.TOPIC, topic, AclOperation.ALL, user),
        acl(ResourceType.GROUP, topic, AclOperation.READ, user),
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in_produces_consumes_and_joins_a_group(secured: SaslBroker, name: str, mechanism: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    allow_everything_on(secured, name)
    how = login(mechanism)
    assert rd.produce(secured.sasl, name, messages(), enable_idempotence=True, **how) == list(range(50))
    with rd.open_consumer(secured.sasl, name, **how) as reader:
        reader.subscribe([name])
        assert [rd.poll_message(reader).value() for _ in range(50)] == [it.value for it in messages()]
        reader.commit(asynchronous=False)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_and_aiokafka_log_in(secured: SaslBroker, name: str, mechanism: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    allow_everything_on(secured, name)
    how = {
        "bootstrap_servers": secured.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password_of_alice(mechanism),
    }
    with closing(KafkaProducer(**how)) as producer:
        assert producer.send(name, b"1").get(WITHIN_S).offset == 0

    async def send() -> int:
        async with AIOKafkaProducer(**how) as sender:
            return int((await sender.send_and_wait(name, b"2")).offset)

    assert asyncio.run(send()) == 1


def test_wrong_logins_are_refused(secured: SaslBroker) -> None:
    for how in (
        login("PLAIN", password="wrong"),
        login("PLAIN", user="nobody", password="any"),
        login("SCRAM-SHA-256", password="wrong"),
        login("SCRAM-SHA-512", user="nobody", password="any"),
    ):
        assert was_refused(secured, how), how


def was_refused(secured: SaslBroker, how: dict[str, Any]) -> bool:
    """Waits until a client reports that its login failed."""
    errors: list[ck.KafkaError] = []
    settings = rd.to_librdkafka_names(how)
    client = AdminClient({"bootstrap.servers": secured.sasl, "error_cb": errors.append, **settings})

    def failed() -> bool:
        client.poll(0.1)
        return any(error.code() == ck.KafkaError._AUTHENTICATION for error in errors)

    return eventually(failed, within_s=WITHIN_S, message=lambda: f"a failed login; errors: {errors}")


def test_client_without_entries_sees_and_does_nothing(secured: SaslBroker, name: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    how = login("PLAIN", "bob", "bobs")
    with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        rd.produce(secured.sasl, name, rd.numbered_messages(0, 1), **how)
    settings = rd.to_librdkafka_names(how)
    bob = AdminClient({"bootstrap.servers": secured.sasl, **settings})
    assert name not in bob.list_topics(timeout=WITHIN_S).topics
    binding = acl(ResourceType.TOPIC, name, AclOperation.ALL, "bob")
    with pytest.raises(ck.KafkaException) as refused:
        bob.create_acls([binding])[binding].result(WITHIN_S)
    assert refused.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"


def test_removed_entry_stops_the_next_request_of_an_open_connection(secured: SaslBroker, name: str) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    write = acl(ResourceType.TOPIC, name, AclOperation.WRITE)
    create_acls(secured, write)
    how = rd.to_librdkafka_names(login("PLAIN"))
    producer = ck.Producer({"bootstrap.servers": secured.sasl, **how})
    outcomes: list[ck.KafkaError | None] = []

    def produce_one() -> ck.KafkaError | None:
        producer.produce(name, b"x", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(WITHIN_S) == 0
        return outcomes[-1]

    assert produce_one() is None
    assert delete_acls(secured, write) == [write]
    refused = produce_one()
    assert refused is not None and refused.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_topics_are_created_automatically_only_for_clients_that_may_create_them(secured: SaslBroker, name: str) -> None:
    create_acls(secured, acl(ResourceType.TOPIC, name, AclOperation.WRITE))
    how = login("PLAIN")
    with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        rd.produce(secured.sasl, name, rd.numbered_messages(0, 1), **how)
    assert name not in secured.admin.list_topics(timeout=WITHIN_S).topics
    create_acls(secured, acl(ResourceType.TOPIC, name, AclOperation.CREATE))
    assert rd.produce(secured.sasl, name, rd.numbered_messages(0, 1), **how) == [0]


def test_operation_on_the_cluster_counts_for_the_deletion_of_any_topic(secured: SaslBroker, name: str) -> None:
    for topic in (name, f"{name}.2"):
        rd.create_topic(secured.broker.bootstrap, topic, 1)
    settings = rd.to_librdkafka_names(login("PLAIN", "bob", "bobs"))
    bob = AdminClient({"bootstrap.servers": secured.sasl, **settings})
    with pytest.raises(ck.KafkaException) as refused:
        bob.delete_topics([name])[name].result(WITHIN_S)
    assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    everything = acl(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL, "bob")
    create_acls(secured, everything)
    try:
        bob.delete_topics([name])[name].result(WITHIN_S)
    finally:
        delete_acls(secured, everything)
    with pytest.raises(ck.KafkaException):
        bob.delete_topics([f"{name}.2"])[f"{name}.2"].result(WITHIN_S)


def test_deny_wins_over_a_rule_with_a_prefix(secured: SaslBroker, name: str) -> None:
    for topic in (name, f"{name}.secret"):
        rd.create_topic(secured.broker.bootstrap, topic, 1)
    create_acls(
        secured,
        acl(ResourceType.TOPIC, name, AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED),
        acl(ResourceType.TOPIC, f"{name}.secret", AclOperation.WRITE, permission=AclPermissionType.DENY),
    )
    how = login("SCRAM-SHA-256")
    assert rd.produce(secured.sasl, name, rd.numbered_messages(0, 1), **how) == [0]
    with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        rd.produce(secured.sasl, f"{name}.secret", rd.numbered_messages(0, 1), **how)


def test_changed_password_replaces_the_former_and_a_removed_credential_is_unknown(
    secured: SaslBroker, name: str
) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    allow_everything_on(secured, name, user="carol")
    set_password(secured, "carol", "first", ScramMechanism.SCRAM_SHA_256)
    record = list(rd.numbered_messages(0, 1))
    assert rd.produce(secured.sasl, name, record, **login("SCRAM-SHA-256", "carol", "first")) == [0]
    set_password(secured, "carol", "second", ScramMechanism.SCRAM_SHA_256)
    with pytest.raises(ck.KafkaException, match="_MSG_TIMED_OUT"):
        rd.produce(
            secured.sasl, name, record, **{**login("SCRAM-SHA-256", "carol", "first"), "message_timeout_ms": 1500}
        )
    assert rd.produce(secured.sasl, name, record, **login("SCRAM-SHA-256", "carol", "second")) == [1]
    described = secured.admin.describe_user_scram_credentials(["carol"])["carol"].result(WITHIN_S)
    assert [(it.mechanism, it.iterations) for it in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    removal = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    secured.admin.alter_user_scram_credentials([removal])["carol"].result(WITHIN_S)
    with pytest.raises(ck.KafkaException) as unknown:
        secured.admin.describe_user_scram_credentials(["carol"])["carol"].result(WITHIN_S)
    with pytest.raises(ck.KafkaException) as nothing_to_remove:
        secured.admin.alter_user_scram_credentials([removal])["carol"].result(WITHIN_S)
    assert unknown.value.args[0].name() == nothing_to_remove.value.args[0].name() == "RESOURCE_NOT_FOUND"


def test_removed_credential_closes_the_sessions_that_logged_in_with_it(
    secured: SaslBroker, name: str, broker_kind: str
) -> None:
    if broker_kind == "kafka":
        pytest.skip("Apache Kafka leaves the sessions open")

    async def open_session(user: str, mechanism: str) -> Channel:
        host, _, port = secured.sasl.partition(":")
        security = ClientSecurity("SASL_PLAINTEXT").with_login(mechanism, user, "secret")
        return await open_channel(host, int(port), name, security=security)

    async def run() -> None:
        for user in ("dora", "emil"):
            set_password(secured, user, "secret", ScramMechanism.SCRAM_SHA_256)
        set_password(secured, "dora", "secret", ScramMechanism.SCRAM_SHA_512)
        removed = await open_session("dora", "SCRAM-SHA-256")
        others = [await open_session("dora", "SCRAM-SHA-512"), await open_session("emil", "SCRAM-SHA-256")]
        set_password(secured, "dora", "another", ScramMechanism.SCRAM_SHA_256)  # a new password leaves sessions open
        assert removed.is_open
        removal = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_256)
        secured.admin.alter_user_scram_credentials([removal])["dora"].result(WITHIN_S)
        await eventually_async(lambda: is_closed(removed))
        for channel in others:
            await channel.load_api_versions()
            channel.close()

    asyncio.run(run())


async def is_closed(channel: Channel) -> bool:
    await asyncio.sleep(0)
    return not channel.is_open


def test_java_tools_change_acls_and_log_in(secured: SaslBroker, name: str, tmp_path: Path) -> None:
    rd.create_topic(secured.broker.bootstrap, name, 1)
    acls, at = "org.apache.kafka.tools.AclCommand", secured.broker.bootstrap
    added = run_java_tool(
        acls, "--bootstrap-server", at, "--add", "--allow-principal", "User:alice", "--producer", "--topic", name
    )
    assert f"ResourcePattern(resourceType=TOPIC, name={name}, patternType=LITERAL)" in added
    listed = run_java_tool(acls, "--bootstrap-server", at, "--list", "--topic", name)
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed
    client = tmp_path / "client.properties"
    password = PASSWORD.replace("ä", r"\u00e4")  # a properties file is Latin-1
    module = f'{MODULES}.scram.ScramLoginModule required username=alice password="{password}";'
    client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={module}\n")
    output = run_java_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", name, "--num-records", "100", "--record-size", "10", "--throughput", "-1"),
        *("--producer.config", str(client), "--producer-props", f"bootstrap.servers={secured.sasl}"),
    )
    assert "100 records sent" in output
    removed = run_java_tool(
        *(acls, "--bootstrap-server", at, "--remove", "--force"),
        *("--allow-principal", "User:alice", "--producer", "--topic", name),
    )
    assert "User:alice" not in run_java_tool(acls, "--bootstrap-server", at, "--list", "--topic", name), removed
