"""Entries of access control lists: `entry` builds one, `entries` is a Hypothesis strategy."""

from hypothesis import strategies as st

from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.security.authorizer import Operation, ResourceType
from ottla_broker.security.principal import Principal

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


HOST = "10.0.0.7"


LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1


DENY, ALLOW = 2, 3


NAMES = ("a", "ab", "abc", "b", "*")


def entry(
    operation: Operation,
    name: str = "orders",
    *,
    kind: ResourceType = ResourceType.topic,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: int = ALLOW,
) -> AccessControlEntry:
    return AccessControlEntry(kind, name, pattern, principal, host, operation, permission)


entries = st.builds(
    AccessControlEntry,
    st.sampled_from((2, 3)),
    st.sampled_from(NAMES),
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from(("User:alice", "User:bob", "User:*")),
    st.sampled_from(("*", HOST, "10.0.0.8")),
    st.sampled_from(list(Operation)),
    st.sampled_from((DENY, ALLOW)),
)
