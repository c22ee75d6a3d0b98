"""Why an operation is allowed or refused."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.access_explanation import AuthorizerSettings, decide_access
from ottla_broker.security.acls import AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.security.principal import Principal
from ottla_broker.security.restricted_super_users import parse_restricted_super_users
from ottla_broker.security.standard_authorizer import StandardAuthorizer

ENTRIES = st.lists(
    st.builds(
        AccessControlEntry,
        st.just(int(ResourceType.topic)),
        st.sampled_from(["t", "to", "*", "u"]),
        st.sampled_from([int(PatternType.LITERAL), int(PatternType.PREFIXED)]),
        st.sampled_from(["User:a", "User:b", "User:*"]),
        st.sampled_from(["*", "1.1.1.1", "2.2.2.2"]),
        st.sampled_from([int(Operation.all), int(Operation.read), int(Operation.describe)]),
        st.sampled_from([int(Permission.ALLOW), int(Permission.DENY)]),
    ),
    max_size=6,
)


@given(ENTRIES, st.sampled_from(["t", "to", "x"]), st.sampled_from([Operation.read, Operation.describe]), st.booleans(),
       st.sampled_from([(), ("User:a",)]), st.sampled_from(["", "User:a=Topic:Read"]))  # fmt: skip
def test_decision_is_that_of_the_authorizer_and_names_its_entry(
    entries: list[AccessControlEntry],
    topic: str,
    operation: Operation,
    allow_if_no_acl: bool,
    super_users: tuple[str],
    restricted_text: str,
) -> None:
    restricted = parse_restricted_super_users(restricted_text)
    authorizer = StandardAuthorizer(super_users, restricted, allow_if_no_acl=allow_if_no_acl)
    by_id = {UUID(int=number): entry for number, entry in enumerate(entries)}
    authorizer.update(by_id, by_id)
    principal, resource = Principal("User", "a"), Resource.topic(topic)
    settings = AuthorizerSettings(super_users, restricted, allow_if_no_acl)
    decision = decide_access(entries, settings, principal, "1.1.1.1", operation, resource)
    assert decision.is_allowed == authorizer.allows(principal, "1.1.1.1", operation, resource)
    assert decision.reason.endswith(".")
    if decision.deciding is not None:
        assert decision.deciding in decision.matching
        assert (decision.deciding.permission == Permission.ALLOW) == decision.is_allowed
