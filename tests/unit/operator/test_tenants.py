"""Tenants: names and rules of their Topics and Users."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.acls import PatternType
from ottla_operator.plan.acl_patterns import describe_entry
from ottla_operator.plan.pipeline.topic_readiness import resources_by_topic
from ottla_operator.plan.user_rules import desired_entries, has_rules, unusable_policies
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.topic import Topic, stored_topic_name
from ottla_operator.resources.user import User
from ottla_operator.resources.validation import validate_resource, validate_update
from tests.unit.operator import samples

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="._-*"), min_size=1, max_size=20)
TARGETS = st.one_of(
    *(NAMES.map(lambda name, kind=kind: {kind: name}) for kind in ("topic", "group", "transactionalId")),  # type: ignore[misc]
    st.builds(
        lambda name, pattern: {"resource": {"type": "Topic", "name": name, "pattern": pattern}},
        NAMES,
        st.sampled_from(["Literal", "Prefixed"]),
    ),
)
RULES = st.lists(st.builds(lambda kind, it: {kind: ["Read", "All"], **it}, st.sampled_from(["allow", "deny"]), TARGETS))


def user(**spec: Any) -> User:
    return User.parse(samples.user(**{"tenant": "acme", **spec}))


def policy(*rules: Any) -> AccessPolicy:
    return AccessPolicy.parse(samples.access_policy(acls=list(rules)))


@given(RULES, RULES)
def test_no_rule_of_a_tenant_is_about_names_of_others(own: list[Any], shared: list[Any]) -> None:
    it = user(acls=own, aclsFrom=[{"name": "shared"}])
    entries = desired_entries(it, "User:acme.alice", {"shared": policy(*shared)})
    assert entries is not None
    assert all(it.resource_name.startswith("acme.") for it in entries)
    assert all(it.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) for it in entries)
    assert bool(entries) == bool(own or shared)


def test_names_are_relative_to_the_tenant() -> None:
    rules = [
        {"allow": ["Read"], "topic": "orders*"},
        {"allow": ["Read"], "group": "*"},
        {"deny": ["Read"], "topic": "a"},
    ]
    entries = desired_entries(user(acls=rules), "User:acme.alice", {})
    assert sorted(map(describe_entry, entries or ())) == [
        "allow Read on group acme.* to User:acme.alice",
        "allow Read on topic acme.orders* to User:acme.alice",
        "deny Read on topic acme.a to User:acme.alice",
    ]


def test_a_user_without_rules_has_all_rights_in_its_tenant() -> None:
    entries = desired_entries(user(), "User:acme.alice", {})
    assert sorted(map(describe_entry, entries or ())) == [
        f"allow All on {it} acme.* to User:acme.alice" for it in ("group", "topic", "transactional id")
    ]
    assert desired_entries(user(acls=[]), "User:acme.alice", {}) == frozenset()
    assert has_rules(user())


def test_users_and_topics_are_named_after_their_tenant() -> None:
    assert user().user_name == "acme.alice"
    assert user(userName="Alice").user_name == "acme.Alice"
    assert user(userName="CN-of-others", authentication={"type": "External"}).user_name == "CN-of-others"
    for spec, name in (({}, "acme.flights"), ({"topicName": "Late.EU"}, "acme.Late.EU")):
        data = samples.topic(tenant="acme", **spec)
        assert list(resources_by_topic([data])) == [name]
        assert Topic.parse(data).topic_name == stored_topic_name(data) == name


def test_a_policy_about_the_cluster_is_not_for_tenants() -> None:
    cluster_wide = policy({"allow": ["Describe"], "cluster": True}, {"allow": ["Read"], "topic": "a"})
    it = user(aclsFrom=[{"name": "wide"}])
    assert unusable_policies(it, {"wide": cluster_wide}) == {
        "wide": "has rules about the cluster, which no user of a tenant may have"
    }
    assert desired_entries(it, "User:acme.alice", {"wide": cluster_wide}) == frozenset()
    without = User.parse(samples.user(aclsFrom=[{"name": "wide"}]))
    assert unusable_policies(without, {"wide": cluster_wide}) == {}


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (samples.user(tenant="acme.eu"), "tenant"),
        (samples.user(tenant="Acme"), "tenant"),
        (samples.user(tenant="acme", acls=[{"allow": ["Describe"], "cluster": True}]), "no rules about the cluster"),
        (
            samples.user(tenant="acme", acls=[{"allow": ["Describe"], "resource": {"type": "Cluster"}}]),
            "no rules about the cluster",
        ),
        (samples.user(tenant="acme", userName="CN=alice"), "cannot be a certificate's subject"),
        (samples.topic(tenant="acme", topicName="x" * 245), "longer than 249 characters"),
    ],
)
def test_resources_outside_the_tenant_are_refused(resource: Any, message: str) -> None:
    assert any(message in str(it) for it in validate_resource(resource))


def test_the_tenant_is_immutable() -> None:
    for make in (samples.user, samples.topic):
        assert [str(it) for it in validate_update(make(tenant="b"), make(tenant="a"))]
        assert [str(it) for it in validate_update(make(), make(tenant="a"))]
