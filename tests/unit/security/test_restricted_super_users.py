"""Principals with a part of the rights of super users."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.acl_index import AclIndex, Verdict
from ottla_broker.security.acls import AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import CLUSTER, OPERATIONS, Operation, Resource, ResourceType
from ottla_broker.security.principal import parse_principal
from ottla_broker.security.restricted_super_users import (
    format_restricted_super_users,
    parse_restricted_super_users,
    with_implied,
)
from ottla_broker.security.standard_authorizer import StandardAuthorizer

RIGHTS = st.frozensets(
    st.sampled_from([(kind, operation) for kind, operations in OPERATIONS.items() for operation in operations])
)


def test_rights_are_written_by_kafkas_names() -> None:
    text = "User:operator=Cluster:AlterConfigs, topic:create; User:CN=a,O=b=Group:Describe"
    found = parse_restricted_super_users(text)
    assert found == {
        "User:operator": {
            (ResourceType.cluster, Operation.alter_configs),
            (ResourceType.cluster, Operation.describe_configs),
            (ResourceType.topic, Operation.create),
        },
        "User:CN=a,O=b": {(ResourceType.group, Operation.describe)},
    }
    assert parse_restricted_super_users(format_restricted_super_users(found)) == found
    assert parse_restricted_super_users("") == {}


@pytest.mark.parametrize(
    "text", ["User:operator", "operator=Topic:Read", "User:a=Topic:ClusterAction", "User:a=Topic", "User:a="]
)
def test_invalid_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no principal|not an operation"):
        parse_restricted_super_users(text)


@given(RIGHTS)
def test_rights_imply_what_entries_that_allow_them_imply(rights: frozenset[tuple[ResourceType, Operation]]) -> None:
    index, principal = AclIndex(), parse_principal("User:operator")
    for kind, operation in rights:
        name = CLUSTER.name if kind is ResourceType.cluster else "*"
        index.add(AccessControlEntry(kind, name, PatternType.LITERAL, str(principal), "*", operation, Permission.ALLOW))
    for kind, operations in OPERATIONS.items():
        for operation in operations:
            verdict = index.decide(
                principal, "h", operation, CLUSTER if kind is ResourceType.cluster else Resource(kind, "x")
            )
            assert (verdict is Verdict.ALLOWED) == ((kind, operation) in with_implied(rights))


def test_entries_neither_give_nor_take_what_the_setting_gives() -> None:
    operator, other = parse_principal("User:operator"), parse_principal("User:other")
    authorizer = StandardAuthorizer((), parse_restricted_super_users("User:operator=Topic:Alter"), allow_if_no_acl=True)
    topic = Resource.topic("orders")
    # The setting is no entry: `allow.everyone.if.no.acl.found` still decides about this resource.
    assert authorizer.allows(other, "h", Operation.read, topic)
    entry = AccessControlEntry(
        ResourceType.topic, "*", PatternType.LITERAL, "User:*", "*", Operation.all, Permission.DENY
    )
    authorizer.update([UUID(int=1)], {UUID(int=1): entry})
    assert authorizer.allows(operator, "h", Operation.describe, topic)
    assert authorizer.allows_any(operator, "h", Operation.alter, ResourceType.topic)
    assert not authorizer.allows(operator, "h", Operation.read, topic)
    assert not authorizer.allows(other, "h", Operation.describe, topic)
