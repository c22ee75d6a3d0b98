"""Which access rules of a source a mirror creates here."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.mirroring.acl_sync import entries_to_create
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
        assert entries_to_create([rule], [], TOPICS) == ([] if created is None else [created]), rule


@given(ENTRIES, ENTRIES)
def test_nobody_may_write_by_a_copied_rule_and_nothing_is_created_twice(
    at_source: list[AccessControlEntry], here: list[AccessControlEntry]
) -> None:
    created = entries_to_create(at_source, here, TOPICS)
    for it in created:
        assert it.resource_name in TOPICS.values()
        assert (it.resource_type, it.pattern_type) == (ResourceType.topic, PatternType.LITERAL)
        assert it.permission == Permission.DENY or it.operation not in (Operation.write, Operation.all)
    assert not set(created) & set(here)
    assert len(set(created)) == len(created)
    assert entries_to_create(at_source, [*here, *created], TOPICS) == []
