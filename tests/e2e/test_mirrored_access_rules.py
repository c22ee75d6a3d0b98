"""A mirror that copies access rules, between two brokers with an authorizer."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import produce, read_watermarks, set_mirror
from tests.ports import free_port
from tests.waiting import eventually

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "User:ANONYMOUS"


@pytest.fixture
def source() -> Iterator[BrokerProcess]:
    with run_ottla_broker(authorizer_class_name=AUTHORIZER, super_users=SUPER_USERS) as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[BrokerProcess]:
    with run_ottla_broker(authorizer_class_name=AUTHORIZER, super_users=SUPER_USERS) as broker:
        yield broker


def add_rule(broker: BrokerProcess, topic: str, operation: AclOperation, *, prefixed: bool = False) -> None:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    rule = AclBinding(ResourceType.TOPIC, topic, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_acls([rule])[rule].result(10)


def remove_rule(broker: BrokerProcess, operation: AclOperation) -> None:
    chosen = AclBindingFilter(
        *(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", operation),
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.delete_acls([chosen])[chosen].result(10)) == 1


def rules(broker: BrokerProcess) -> set[tuple[str, str]]:
    every = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return {(it.name, it.operation.name) for it in admin.describe_acls(every).result(10)}


def test_rules_of_mirrored_topics_are_copied_without_the_permission_to_write(
    source: BrokerProcess, target: BrokerProcess
) -> None:
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    for done in admin.create_topics([NewTopic(it, 1, 1) for it in ("orders", "secrets")]).values():
        done.result(10)
    produce(source.bootstrap, "orders", [b"one"])
    for operation in (AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE, AclOperation.ALL):
        add_rule(source, "orders", operation)
    add_rule(source, "secrets", AclOperation.READ)
    add_rule(source, "ord", AclOperation.READ, prefixed=True)
    settings = {"bootstrap.servers": source.bootstrap, "topics": "orders", "prefix": "west.", "sync.acls": "true"}
    set_mirror(target.bootstrap, "west", {**settings, "metadata.max.age.ms": "500"})
    expected = {("west.orders", "DESCRIBE_CONFIGS"), ("west.orders", "READ")}
    eventually(lambda: rules(target) == expected, within_s=30, message=target.log_tail)
    eventually(lambda: read_watermarks(target.bootstrap, "west.orders", 0) == (0, 1), within_s=30)
    add_rule(source, "orders", AclOperation.DELETE)
    eventually(lambda: rules(target) == {*expected, ("west.orders", "DELETE")}, within_s=30)
    assert "created 2 access rules of the source's topics" in target.log_tail()
    add_rule(target, "west.orders", AclOperation.ALTER)
    remove_rule(source, AclOperation.ALL)
    kept = {("west.orders", it) for it in ("DESCRIBE_CONFIGS", "DELETE", "ALTER")}
    eventually(lambda: rules(target) == kept, within_s=30, message=target.log_tail)


def test_a_mirror_that_may_not_read_rules_says_so_and_copies_records(target: BrokerProcess) -> None:
    with run_ottla_broker(start=False, authorizer_class_name=AUTHORIZER, super_users=SUPER_USERS) as source:
        login = free_port()
        source.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{source.port},LOGIN://127.0.0.1:{login}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
            ),
        }
        source.start()
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(10)
        produce(source.bootstrap, "orders", [b"one"])
        for operation in (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS):
            add_rule(source, "orders", operation)
        settings = {
            "bootstrap.servers": f"127.0.0.1:{login}",
            "topics": "orders",
            "sync.acls": "true",
            "metadata.max.age.ms": "500",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        set_mirror(target.bootstrap, "west", settings)
        warning = f"mirror west: the source at 127.0.0.1:{login}: access rules cannot be read (sync.acls): "
        eventually(lambda: warning in target.log_tail(), within_s=30, message=target.log_tail)
        eventually(lambda: read_watermarks(target.bootstrap, "orders", 0) == (0, 1), within_s=30)
        assert rules(target) == set()
