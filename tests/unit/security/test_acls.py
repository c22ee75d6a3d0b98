"""Kafka's rules of access control, one by one and against a naive implementation."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.acl_index import AclIndex, Verdict
from ottla_broker.security.acls import AccessControlEntry, AclFilter, find_problem
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal
from ottla_broker.security.standard_authorizer import StandardAuthorizer
from tests.unit.security.acl_entries import (
    ALICE,
    ALLOW,
    ANY,
    BOB,
    DENY,
    HOST,
    LITERAL,
    MATCH,
    NAMES,
    PREFIXED,
    entries,
    entry,
)


def authorizer_with(
    *entries: AccessControlEntry, super_users: tuple[str, ...] = (), allow_if_no_acl: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, allow_if_no_acl=allow_if_no_acl)
    ids = {UUID(int=number): one for number, one in enumerate(entries)}
    made.update(ids, ids)
    return made


def naive_verdict(
    all_entries: list[AccessControlEntry], principal: Principal, operation: Operation, resource: Resource
) -> Verdict:
    """Reads all entries, as the documentation of Kafka describes their meaning."""

    def matches(one: AccessControlEntry) -> bool:
        if one.resource_type != resource.kind:
            return False
        if one.pattern_type == PREFIXED:
            return resource.name.startswith(one.resource_name)
        return one.resource_name in ("*", resource.name)

    matching = [one for one in all_entries if matches(one)]
    for_client = [one for one in matching if one.principal in (str(principal), "User:*") and one.host in ("*", HOST)]
    if any(one.permission == DENY and one.operation in (Operation.all, operation) for one in for_client):
        return Verdict.DENIED
    allowing = {operation, Operation.all}
    if operation is Operation.describe:
        allowing |= {Operation.read, Operation.write, Operation.delete, Operation.alter}
    if operation is Operation.describe_configs:
        allowing |= {Operation.alter_configs}
    if any(one.permission == ALLOW and one.operation in allowing for one in for_client):
        return Verdict.ALLOWED
    return Verdict.DENIED if matching else Verdict.NO_MATCHING_ENTRY


@given(
    st.lists(entries, max_size=8, unique=True),
    st.integers(0, 8),
    st.sampled_from((ALICE, BOB)),
    st.sampled_from(list(Operation)),
    st.sampled_from(("a", "ab", "abcd", "c")),
)
def test_index_decides_as_a_naive_reading_of_all_entries(
    added: list[AccessControlEntry], removed: int, principal: Principal, operation: Operation, name: str
) -> None:
    index = AclIndex()
    for one in added:
        index.add(one)
    for one in added[:removed]:
        index.remove(one)
    resource = Resource(ResourceType.topic, name)
    expected = naive_verdict(added[removed:], principal, operation, resource)
    assert index.decide(principal, HOST, operation, resource) is expected


@given(st.lists(entries, max_size=6, unique=True), st.sampled_from((Operation.write, Operation.read)))
def test_any_resource_of_a_type_is_allowed_if_some_name_is(
    added: list[AccessControlEntry], operation: Operation
) -> None:
    index = AclIndex()
    for one in added:
        index.add(one)
    names = [*NAMES[:-1], *(f"{name}~" for name in NAMES), "other"]
    some_name_is_allowed = any(
        index.decide(ALICE, HOST, operation, Resource(ResourceType.topic, name)) is Verdict.ALLOWED for name in names
    )
    assert index.allows_any(ALICE, HOST, operation, ResourceType.topic) == some_name_is_allowed


def test_super_users_may_do_everything_and_others_only_what_an_entry_allows() -> None:
    authorizer = authorizer_with(entry(Operation.all, permission=DENY, principal="User:*"), super_users=("User:alice",))
    orders = Resource.topic("orders")
    assert authorizer.allows(ALICE, HOST, Operation.write, orders)
    assert not authorizer.allows(BOB, HOST, Operation.write, orders)


def test_everyone_is_allowed_only_where_no_entry_matches_the_resource() -> None:
    authorizer = authorizer_with(entry(Operation.read, "orders", principal="User:bob"), allow_if_no_acl=True)
    assert authorizer.allows(ALICE, HOST, Operation.read, Resource.topic("payments"))
    assert not authorizer.allows(ALICE, HOST, Operation.read, Resource.topic("orders"))


def test_deny_of_read_does_not_deny_describe() -> None:
    authorizer = authorizer_with(entry(Operation.read, permission=DENY), entry(Operation.write))
    assert authorizer.allows(ALICE, HOST, Operation.describe, Resource.topic("orders"))
    assert not authorizer.allows(ALICE, HOST, Operation.read, Resource.topic("orders"))


def test_a_decision_is_forgotten_when_an_entry_changes() -> None:
    entry_id, authorizer = UUID(int=1), authorizer_with()
    orders = Resource.topic("orders")
    assert not authorizer.allows(ALICE, HOST, Operation.read, orders)
    authorizer.update([entry_id], {entry_id: entry(Operation.read)})
    assert authorizer.allows(ALICE, HOST, Operation.read, orders)
    authorizer.update([entry_id], {})
    assert not authorizer.allows(ALICE, HOST, Operation.read, orders)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (entry(Operation.read, pattern=MATCH), "pattern type 2 cannot be created"),
        (AccessControlEntry(1, "x", LITERAL, "User:a", "*", 3, ALLOW), "resource type 1 cannot be created"),
        (AccessControlEntry(2, "x", LITERAL, "User:a", "*", 1, ALLOW), "operation 1 cannot be created"),
        (entry(Operation.read, permission=1), "permission type 1 cannot be created"),
        (entry(Operation.read, ""), "the resource name is empty"),
        (entry(Operation.alter, "mine", kind=ResourceType.cluster), "allowed: 'kafka-cluster'"),
        (entry(Operation.read, principal="alice"), "the principal is 'alice'; allowed: TYPE:NAME"),
        (entry(Operation.read, host=""), "the host is empty"),
    ],
)
def test_entry_that_cannot_be_created_is_refused_with_what_is_allowed(wrong: AccessControlEntry, sentence: str) -> None:
    assert sentence in str(find_problem(wrong))
    assert find_problem(entry(Operation.alter, CLUSTER.name, kind=ResourceType.cluster)) is None


def test_filters_select_by_pattern() -> None:
    literal, prefixed, wildcard = (
        entry(Operation.read, "orders"),
        entry(Operation.read, "ord", pattern=PREFIXED),
        entry(Operation.read, "*"),
    )
    everything = [literal, prefixed, wildcard]

    def selected(name: str | None, pattern: int) -> list[AccessControlEntry]:
        wanted = AclFilter(2, name, pattern, None, None, ANY, ANY)
        assert wanted.find_problem() is None
        return [one for one in everything if wanted.selects(one)]

    assert selected(None, ANY) == everything
    assert selected("orders", LITERAL) == [literal]
    assert selected("ord", PREFIXED) == [prefixed]
    assert selected("orders", MATCH) == everything
    assert selected("or", MATCH) == [wildcard]
    assert AclFilter(9, None, ANY, None, None, ANY, ANY).find_problem() is not None
