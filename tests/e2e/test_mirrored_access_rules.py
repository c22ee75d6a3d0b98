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


def rules(broker: BrokerProcess) -> set[tuple[str, str]]:
    every = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return {(it.name, it.operation.name) for it in admin.describe_acls(every).result(10)}


def test_rules_of_mirrored_topics_are_copied_without_those_that_allow_to_write(
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
    assert read_watermarks(target.bootstrap, "west.orders", 0) == (0, 1)
    add_rule(source, "orders", AclOperation.DELETE)
    eventually(lambda: rules(target) == {*expected, ("west.orders", "DELETE")}, within_s=30)
    assert "created 2 access rules of the source's topics" in target.log_tail()
