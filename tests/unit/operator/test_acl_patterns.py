"""Access rules in the form that people write."""

import pytest

from ottla_broker.security.acls import AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_operator.plan.acl_patterns import describe_entry, format_pattern, parse_pattern, parse_principal


@pytest.mark.parametrize(
    ("text", "name", "pattern_type"),
    [
        ("orders", "orders", PatternType.LITERAL),
        ("orders*", "orders", PatternType.PREFIXED),
        ("*", "*", PatternType.LITERAL),
        ("a*b", "a*b", PatternType.LITERAL),
    ],
)
def test_pattern_is_read_and_written(text: str, name: str, pattern_type: PatternType) -> None:
    assert parse_pattern(text) == (name, pattern_type)
    assert format_pattern(name, pattern_type) == text


def test_literal_name_that_ends_with_a_star_is_marked() -> None:
    assert format_pattern("orders*", PatternType.LITERAL) == "orders* (literal)"


@pytest.mark.parametrize("text", ["alice", "User:alice"])
def test_principal_is_a_user_unless_it_says_otherwise(text: str) -> None:
    assert str(parse_principal(text)) == "User:alice"


def test_distinguished_name_is_the_name_of_a_user() -> None:
    assert str(parse_principal("CN=alice,O=example")) == "User:CN=alice,O=example"


def test_rule_reads_as_a_sentence() -> None:
    rule = AccessControlEntry(ResourceType.topic, "orders", 4, "User:alice", "10.0.0.1", Operation.read, 3)
    assert describe_entry(rule) == "allow Read on topic orders* to User:alice from 10.0.0.1"
    of_cluster = AccessControlEntry(
        ResourceType.cluster, CLUSTER.name, 3, "User:*", "*", Operation.idempotent_write, Permission.DENY
    )
    assert describe_entry(of_cluster) == "deny IdempotentWrite on cluster to User:*"
