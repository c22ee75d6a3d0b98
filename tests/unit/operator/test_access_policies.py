"""AccessPolicies: rules of Users that name them, and what a missing policy takes away."""

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.acls import AccessControlEntry, Permission
from ottla_operator.local.documents import InvalidFiles, read_files
from ottla_operator.plan.acl_patterns import describe_entry
from ottla_operator.plan.user_rules import desired_entries, has_rules, unusable_policies
from ottla_operator.plan.users import ObservedUser, UserResource, desired_user, plan_user_changes
from ottla_operator.reconcile.access_policies import cached_policy_names
from ottla_operator.reconcile.platform import Platform
from ottla_operator.reconcile.users import UserReconciler
from ottla_operator.reconcile.watch_cache import WatchCache
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.user import User
from ottla_operator.resources.validation import validate_resource
from tests.unit.operator import samples

PRINCIPAL = "User:alice"
ALLOW, DENY = {"allow": ["Read"], "topic": "orders*"}, {"deny": ["Read"], "topic": "orders.secret"}


def user(**spec: Any) -> User:
    return User.parse(samples.user(**spec))


def policy(*rules: Any) -> AccessPolicy:
    return AccessPolicy.parse(samples.access_policy(acls=list(rules)))


def describe_entries(it: User, policies: dict[str, AccessPolicy | None]) -> set[str]:
    entries = desired_entries(it, PRINCIPAL, policies)
    assert entries is not None
    return {describe_entry(it).removesuffix(f" to {PRINCIPAL}") for it in entries}


def test_a_user_has_its_own_rules_and_those_of_its_policies() -> None:
    named = user(acls=[{"allow": ["Read"], "group": "billing*"}], aclsFrom=[{"name": "a"}, {"name": "b"}])
    assert describe_entries(named, {"a": policy(ALLOW), "b": policy(DENY, ALLOW)}) == {
        "allow Read on group billing*",
        "allow Read on topic orders*",
        "deny Read on topic orders.secret",
    }
    alone = user(aclsFrom=[{"name": "a"}])
    assert describe_entries(alone, {"a": policy(ALLOW)}) == {"allow Read on topic orders*"}
    assert desired_entries(user(), PRINCIPAL, {}) is None, "neither field: rules are not managed"
    assert (has_rules(alone), has_rules(user()), has_rules(user(acls=[]))) == (True, False, False)


rules = st.lists(st.sampled_from([ALLOW, DENY, {"deny": ["Write"], "topic": "*"}, {"allow": ["All"], "topic": "*"}]))


@given(rules, rules)
def test_nobody_may_do_more_while_a_policy_is_missing(own: list[Any], of_policy: list[Any]) -> None:
    it = user(acls=own, aclsFrom=[{"name": "a"}])
    before = desired_user(it, "alice", {"a": policy(*of_policy)}, is_password_set=True).acls
    assert before is not None
    without = desired_user(it, "alice", {"a": None}, is_password_set=True)
    changes = plan_user_changes(without, ObservedUser(acls=before))
    after = (before | set(changes.add_acls)) - set(changes.remove_acls)
    assert after <= before

    def denials(entries: frozenset[AccessControlEntry]) -> set[AccessControlEntry]:
        return {it for it in entries if it.permission == Permission.DENY}

    assert denials(after) == denials(before)
    assert list(unusable_policies(it, {"a": None})) == ["a"]


class RecordedEvents:
    """A platform that only records the reasons of events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def record_event(self, resource: Any, reason: str, message: str, *, is_warning: bool = False) -> None:
        self.reasons.append(reason)


def test_rules_that_change_with_a_policy_are_no_drift() -> None:
    spec = samples.user(aclsFrom=[{"name": "a"}])
    status = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
    body = {**spec, "metadata": {"name": "alice", "uid": "u1", "generation": 1}, "status": status}
    resource, events = UserResource.of_cluster(None, body), RecordedEvents()
    reconciler = UserReconciler(cast(Platform, events), WatchCache())
    for applied in (policy(ALLOW), policy(ALLOW, DENY), policy(ALLOW, DENY)):
        desired = desired_user(User.parse(spec), "alice", {"a": applied}, is_password_set=True)
        changes = plan_user_changes(desired, ObservedUser())
        asyncio.run(reconciler._record_changes(resource, changes, {"a": applied}, is_password_known=True))
    assert events.reasons == ["UserChanged", "UserChanged", "DriftCorrected"], "the first policy was not known before"


def test_policies_are_validated_as_rules_of_users_are() -> None:
    assert not validate_resource(samples.access_policy())
    (problem,) = validate_resource(samples.access_policy(acls=[{"topic": "a"}]))
    assert "a rule has either allow or deny" in str(problem)
    assert validate_resource(samples.resource("AccessPolicy", "a", {}))
    assert cached_policy_names({"spec": {"aclsFrom": "nonsense"}}) == cached_policy_names({"spec": None}) == set()


def test_files_that_name_a_missing_policy_are_refused(tmp_path: Any) -> None:
    file = tmp_path / "demo.yaml"
    head = "apiVersion: ottla.dev/v1alpha1\nkind: "
    text = (
        f"{head}Cluster\nmetadata: {{name: demo}}\nspec: {{replicas: 1}}\n---\n"
        f"{head}AccessPolicy\nmetadata: {{name: readers}}\nspec: {{acls: []}}\n---\n"
        f"{head}User\nmetadata: {{name: alice}}\nspec:\n  clusterRef: {{name: demo}}\n"
        "  authentication: {type: External}\n  aclsFrom: [{name: reader}]\n"
    )
    file.write_text(text)
    with pytest.raises(InvalidFiles) as refused:
        read_files([file])
    assert refused.value.lines == (
        f"{file}:17: spec.aclsFrom[0].name: AccessPolicy 'reader' is not in these files; did you mean 'readers'?",
    )
    file.write_text(text.replace("{name: reader}", "{name: readers}"))
    assert len(read_files([file])) == 3
