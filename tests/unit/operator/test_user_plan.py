"""Changes of a user: properties of the plan, searched by hypothesis, and rules in short and long
form.
"""

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.acls import AccessControlEntry, Permission
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.security.scram import ScramMechanism
from ottla_operator.plan.acl_patterns import describe_entry
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.user_records import UserRecord, plan_revocations, resources_to_look_up
from ottla_operator.plan.users import (
    DesiredUser,
    ObservedUser,
    UserChanges,
    UserResource,
    describe_changes,
    desired_user,
    find_obstacle,
    plan_user_changes,
    plan_user_removal,
    previous_credential_end,
    secret_owners,
    user_owners,
)
from ottla_operator.resources.user import User
from tests.unit.operator import samples

MECHANISMS = st.sampled_from(list(ScramMechanism))
ENTRIES = st.frozensets(
    st.builds(
        AccessControlEntry,
        st.sampled_from(list(ResourceType)),
        st.sampled_from(["orders", "*"]),
        st.sampled_from([3, 4]),
        st.just("User:alice"),
        st.sampled_from(["*", "10.0.0.1"]),
        st.sampled_from(list(Operation)),
        st.sampled_from([2, 3]),
    ),
    max_size=6,
)
QUOTAS = st.dictionaries(st.sampled_from(["producer_byte_rate", "request_percentage"]), st.floats(1, 100))
OBSERVED = st.builds(ObservedUser, st.frozensets(MECHANISMS), ENTRIES, QUOTAS)
DESIRED = st.builds(
    DesiredUser,
    st.just("alice"),
    st.none() | MECHANISMS,
    st.booleans(),
    st.none() | ENTRIES,
    st.booleans(),
    st.none() | QUOTAS,
)


def apply_changes(changes: UserChanges, observed: ObservedUser) -> ObservedUser:
    """The state of the brokers after the changes."""
    added = {changes.set_password} if changes.set_password else set()
    quotas: Mapping[str, float | None] = {**observed.quotas, **changes.quotas}
    return ObservedUser(
        (observed.mechanisms | added) - set(changes.remove_credentials),
        (observed.acls | set(changes.add_acls)) - set(changes.remove_acls),
        {key: value for key, value in quotas.items() if value is not None},
    )


@given(DESIRED, OBSERVED)
def test_nothing_is_left_to_change_after_the_changes(desired: DesiredUser, observed: ObservedUser) -> None:
    after = apply_changes(plan_user_changes(desired, observed), observed)
    settled = replace(desired, is_password_set=True)
    assert not plan_user_changes(settled, after)
    assert after.mechanisms == ({desired.mechanism} if desired.mechanism else set())
    kept = {it for it in observed.acls if desired.keeps_denials and it.permission == Permission.DENY}
    assert after.acls == (observed.acls if desired.acls is None else desired.acls | kept)
    assert after.quotas == (observed.quotas if desired.quotas is None else desired.quotas)


@given(DESIRED, OBSERVED)
def test_only_what_differs_is_changed(desired: DesiredUser, observed: ObservedUser) -> None:
    changes = plan_user_changes(desired, observed)
    assert not set(changes.add_acls) & observed.acls
    assert set(changes.remove_acls) <= observed.acls
    assert set(changes.remove_credentials) <= observed.mechanisms
    if desired.is_password_set and desired.mechanism in observed.mechanisms:
        assert changes.set_password is None
    assert all(observed.quotas.get(key) != value for key, value in changes.quotas.items())


@given(OBSERVED)
def test_removed_user_has_nothing(observed: ObservedUser) -> None:
    assert apply_changes(plan_user_removal(observed), observed) == ObservedUser()


def user(**spec: Any) -> User:
    return User.parse(samples.user(**spec))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            {"allow": ["Read", "Write"], "topic": "orders*"},
            ["allow Read on topic orders* to User:alice", "allow Write on topic orders* to User:alice"],
        ),
        ({"deny": ["All"], "topic": "*"}, ["deny All on topic * to User:alice"]),
        ({"allow": ["Read"], "group": "b", "host": "::1"}, ["allow Read on group b to User:alice from ::1"]),
        (
            {"allow": ["Write"], "transactionalId": "t-*"},
            ["allow Write on transactional id t-* to User:alice"],
        ),
        ({"allow": ["IdempotentWrite"], "cluster": True}, ["allow IdempotentWrite on cluster to User:alice"]),
        (
            {"allow": ["Read"], "resource": {"type": "Group", "name": "odd*"}},
            ["allow Read on group odd* (literal) to User:alice"],
        ),
        (
            {"allow": ["Read"], "resource": {"type": "Topic", "name": "orders", "pattern": "Prefixed"}},
            ["allow Read on topic orders* to User:alice"],
        ),
        ({"allow": ["Alter"], "resource": {"type": "Cluster"}}, ["allow Alter on cluster to User:alice"]),
    ],
    ids=str,
)
def test_rules_become_entries(rule: dict[str, Any], expected: list[str]) -> None:
    acls = desired_user(user(acls=[rule]), "alice", {}, is_password_set=True).acls
    assert acls is not None
    assert sorted(map(describe_entry, acls)) == expected


def test_parts_that_the_spec_omits_are_not_managed() -> None:
    desired = desired_user(user(), "alice", {}, is_password_set=True)
    assert (desired.acls, desired.quotas) == (None, None)
    managed = desired_user(user(acls=[], quotas={"producerByteRate": 1000}), "alice", {}, is_password_set=True)
    assert (managed.acls, managed.quotas) == (frozenset(), {"producer_byte_rate": 1000.0})


def test_changes_are_described_for_people() -> None:
    entry = AccessControlEntry(2, "orders", 4, "User:alice", "*", 3, 3)
    description = describe_changes(
        UserChanges(ScramMechanism.SHA_512, (ScramMechanism.SHA_256,), (entry,), (), {"a": 1e6, "b": None})
    )
    assert description == (
        "password set for SCRAM-SHA-512; credential for SCRAM-SHA-256 removed; "
        "1 rule added: allow Read on topic orders* to User:alice; a=1e+06; b unset"
    )


def resource(name: str, uid: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> UserResource:
    body = samples.user(name, **spec)
    body["metadata"] |= {"uid": uid, "creationTimestamp": created, "generation": 1}
    return UserResource.of_cluster(None, body)


@pytest.mark.parametrize("spec", [{}, {"userName": "ottla-broker"}])
def test_no_user_resource_gets_the_name_of_brokers_or_the_operator(spec: dict[str, str]) -> None:
    found = resource("ottla-operator", "1", **spec)
    assert found.parsed is None and found.invalid_reason.startswith(f"user name {spec.get('userName', found.name)} is")
    assert user_owners([found]) == {}


def test_the_older_resource_owns_a_user_name() -> None:
    old, new = resource("b", "1", userName="x"), resource("a", "2", "2026-02-01T00:00:00Z", userName="x")
    assert user_owners([new, old]) == {"x": old}


RECORDS = {"1": UserRecord("alice", "alice", "alice"), "2": UserRecord("bob", "bob", "bob")}


def test_the_older_resource_owns_a_secret() -> None:
    young = resource("a", "1", "2026-02-01T00:00:00Z", secretName="b")
    old = resource("b", "2")
    external = resource("c", "3", "2025-01-01T00:00:00Z", secretName="b", authentication={"type": "External"})
    users = [young, old, external]
    found = {it.name: find_obstacle(it, user_owners(users), secret_owners(users)) for it in users}
    assert found == {"a": Stalled("NameConflict", "Secret b belongs to the older User b"), "b": None, "c": None}


def test_users_whose_resources_surely_do_not_exist_are_revoked() -> None:
    alice = resource("alice", "1")
    assert resources_to_look_up(RECORDS, [alice], ()) == {"bob"}
    assert plan_revocations(RECORDS, [alice], (), {"bob": "2"}) == {}, "no watch has shown the resource yet"
    assert plan_revocations(RECORDS, [alice], (), {"bob": None}).keys() == {"2"}
    assert plan_revocations(RECORDS, [alice], (), {"bob": "3"}).keys() == {"2"}, "another resource has the name"
    assert plan_revocations(RECORDS, [alice], ("2",), {}).keys() == {"2"}, "it is being deleted"


NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LATER, EARLIER = NOW + datetime.timedelta(seconds=60), NOW - datetime.timedelta(seconds=1)
SWITCHED = UserChanges(ScramMechanism.SHA_512, (ScramMechanism.SHA_256,))
STRAY = UserChanges(None, (ScramMechanism.SHA_256,))


@pytest.mark.parametrize(
    ("changes", "overlap_ms", "known_end", "expected"),
    [
        (SWITCHED, 60_000, None, LATER),
        (SWITCHED, 0, None, None),
        (STRAY, 60_000, LATER, LATER),
        (STRAY, 60_000, EARLIER, None),
        (STRAY, 60_000, None, None),
        (UserChanges(), 60_000, LATER, None),
    ],
)
def test_previous_password_stays_for_the_overlap(
    changes: UserChanges,
    overlap_ms: int,
    known_end: datetime.datetime | None,
    expected: datetime.datetime | None,
) -> None:
    assert previous_credential_end(changes, overlap_ms, known_end, NOW) == expected
