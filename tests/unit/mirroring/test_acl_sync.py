"""The access rules of a source that a mirror creates here, and those that it removes."""

from collections.abc import Iterable
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla_broker.mirroring.acl_sync import copied_entry_id, plan_acl_sync
from ottla_broker.security.acls import AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import Operation, ResourceType

TOPICS = {"orders": "west.orders", "flights": "west.flights"}
RULE = AccessControlEntry(
    int(ResourceType.topic),
    "orders",
    int(PatternType.LITERAL),
    "User:alice",
    "*",
    int(Operation.read),
    int(Permission.ALLOW),
)
ENTRIES = st.lists(
    st.builds(
        AccessControlEntry,
        st.sampled_from([int(it) for it in (ResourceType.topic, ResourceType.group, ResourceType.cluster)]),
        st.sampled_from(["orders", "flights", "west.orders", "secrets", "*"]),
        st.sampled_from([int(PatternType.LITERAL), int(PatternType.PREFIXED)]),
        st.sampled_from(["User:alice", "User:*"]),
        st.sampled_from(["*", "10.0.0.1"]),
        st.sampled_from([int(it) for it in (Operation.all, Operation.read, Operation.write, Operation.describe)]),
        st.sampled_from([int(Permission.ALLOW), int(Permission.DENY)]),
    ),
    max_size=20,
)


def with_ids(entries: Iterable[AccessControlEntry]) -> dict[UUID, AccessControlEntry]:
    return {UUID(int=number): it for number, it in enumerate(dict.fromkeys(entries))}


def test_rules_are_copied_as_mirror_maker_does() -> None:
    cases = {
        RULE: replace(RULE, resource_name="west.orders"),
        replace(RULE, operation=int(Operation.all)): replace(RULE, resource_name="west.orders"),
        replace(RULE, operation=int(Operation.write)): None,
        replace(RULE, operation=int(Operation.write), permission=int(Permission.DENY)): replace(
            RULE, resource_name="west.orders", operation=int(Operation.write), permission=int(Permission.DENY)
        ),
        replace(RULE, operation=int(Operation.all), permission=int(Permission.DENY)): replace(
            RULE, resource_name="west.orders", operation=int(Operation.all), permission=int(Permission.DENY)
        ),
        replace(RULE, pattern_type=int(PatternType.PREFIXED)): None,
        replace(RULE, resource_name="*"): None,
        replace(RULE, resource_name="secrets"): None,
        replace(RULE, resource_type=int(ResourceType.group)): None,
    }
    for rule, created in cases.items():
        changes = plan_acl_sync("west", [rule], {}, TOPICS)
        assert [*changes.to_create.values()] == ([] if created is None else [created]), rule


@given(ENTRIES, ENTRIES)
def test_nobody_may_write_by_a_copied_rule_and_nothing_is_created_twice(
    at_source: list[AccessControlEntry], here: list[AccessControlEntry]
) -> None:
    changes = plan_acl_sync("west", at_source, with_ids(here), TOPICS)
    assert not changes.to_delete
    created = [*changes.to_create.values()]
    for it in created:
        assert it.resource_name in TOPICS.values()
        assert (it.resource_type, it.pattern_type) == (ResourceType.topic, PatternType.LITERAL)
        assert it.permission == Permission.DENY or it.operation not in (Operation.write, Operation.all)
    assert not set(created) & set(here)
    assert len(set(created)) == len(created)
    assert not plan_acl_sync("west", at_source, {**with_ids(here), **changes.to_create}, TOPICS)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_a_rule_that_is_gone_at_the_source_is_removed_if_the_mirror_has_created_it(
    first: list[AccessControlEntry], then: list[AccessControlEntry], others: list[AccessControlEntry]
) -> None:
    existing = with_ids(others)
    here = {**existing, **plan_acl_sync("west", first, existing, TOPICS).to_create}
    changes = plan_acl_sync("west", then, here, TOPICS)
    after = {id_: it for id_, it in {**here, **changes.to_create}.items() if id_ not in changes.to_delete}
    assert existing.items() <= after.items(), "rules of others stay"
    assert {*after.values()} == {*existing.values()} | {*plan_acl_sync("west", then, {}, TOPICS).to_create.values()}
    assert not plan_acl_sync("west", then, after, TOPICS)


def test_rules_of_another_mirror_and_of_topics_that_are_no_longer_mirrored_stay() -> None:
    copied = replace(RULE, resource_name="west.orders")
    here = {copied_entry_id("west", copied): copied}
    assert plan_acl_sync("west", [], here, TOPICS).to_delete == tuple(here)
    assert not plan_acl_sync("east", [], here, TOPICS)
    assert not plan_acl_sync("west", [], here, {"flights": "west.flights"})
