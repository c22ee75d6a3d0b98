"""`explain` names the rule by which the authorizer decides."""

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.security.acl_explanation import explain
from ottla_broker.security.acl_index import AclIndex, Verdict, permission_of
from ottla_broker.security.acls import AccessControlEntry, Permission
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from tests.unit.security.acl_entries import ALICE, DENY, HOST, PREFIXED, entries, entry

resources = st.builds(
    Resource, st.sampled_from((ResourceType.topic, ResourceType.group)), st.sampled_from(("a", "abc"))
)


@given(st.lists(entries, max_size=8, unique=True), st.sampled_from(list(Operation)), resources)
def test_explanation_and_authorizer_agree(
    acls: list[AccessControlEntry], operation: Operation, resource: Resource
) -> None:
    index = AclIndex()
    for it in acls:
        index.add(it)
    explanation = explain(acls, ALICE, HOST, operation, resource)
    assert explanation.verdict is index.decide(ALICE, HOST, operation, resource)
    if explanation.deciding is not None:
        assert explanation.deciding in explanation.matching
        permission = permission_of(explanation.deciding, ALICE, HOST, operation)
        assert (permission is Permission.ALLOW) == (explanation.verdict is Verdict.ALLOWED)
    else:
        assert all(permission_of(it, ALICE, HOST, operation) is None for it in explanation.matching)


def test_deny_decides_over_an_earlier_allow() -> None:
    allow, deny = entry(Operation.read), entry(Operation.all, "ord", pattern=PREFIXED, permission=DENY)
    explanation = explain([allow, deny], ALICE, HOST, Operation.read, Resource.topic("orders"))
    assert (explanation.verdict, explanation.deciding) == (Verdict.DENIED, deny)


def test_write_decides_about_describe() -> None:
    write = entry(Operation.write)
    explanation = explain([write], ALICE, HOST, Operation.describe, Resource.topic("orders"))
    assert (explanation.verdict, explanation.deciding) == (Verdict.ALLOWED, write)
