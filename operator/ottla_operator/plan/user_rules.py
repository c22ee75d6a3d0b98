"""The access control entries that a User asks for: its own rules and those of AccessPolicies. Pure.

Invariant: a user never has more because a policy is missing. What only the missing policy allows is
removed, as Kubernetes does where a Role is missing; denials stay, because the policy may have had
them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.security.acls import WILDCARD, AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_operator.plan.acl_patterns import camel_case, parse_pattern
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.acl_rule import AclRule
from ottla_operator.resources.user import User

_OPERATIONS: Final = {camel_case(it.name): it for it in Operation}
_TYPES: Final = {camel_case(it.name): it for it in ResourceType}
_PATTERNS: Final = {"Literal": PatternType.LITERAL, "Prefixed": PatternType.PREFIXED}


def policy_names(user: User) -> tuple[str, ...]:
    return tuple(it.name for it in user.spec.acls_from or ())


def missing_policies(user: User, policies: Mapping[str, AccessPolicy | None]) -> tuple[str, ...]:
    """Names of policies that the user asks for and that do not exist, or are invalid."""
    return tuple(it for it in policy_names(user) if policies.get(it) is None)


def has_rules(user: User) -> bool:
    """True if the user asks for rules, so that its Cluster has to decide by them."""
    return bool(user.spec.acls or user.spec.acls_from)


def desired_entries(
    user: User, principal: str, policies: Mapping[str, AccessPolicy | None]
) -> frozenset[AccessControlEntry] | None:
    """None: the user's rules are not managed."""
    if user.spec.acls is None and user.spec.acls_from is None:
        return None
    found = [policies.get(it) for it in policy_names(user)]
    rules = [*(user.spec.acls or ()), *(rule for it in found if it is not None for rule in it.spec.acls)]
    return frozenset(entry for rule in rules for entry in _entries(rule, principal))


def _entries(rule: AclRule, principal: str) -> Iterable[AccessControlEntry]:
    permission = Permission.ALLOW if rule.allow else Permission.DENY
    type_, name, pattern = _resource(rule)
    for operation in rule.allow or rule.deny or ():
        yield AccessControlEntry(
            int(type_),
            name,
            int(pattern),
            principal,
            rule.host or WILDCARD,
            int(_OPERATIONS[operation]),
            int(permission),
        )


def _resource(rule: AclRule) -> tuple[ResourceType, str, PatternType]:
    named = {
        ResourceType.topic: rule.topic,
        ResourceType.group: rule.group,
        ResourceType.transactional_id: rule.transactional_id,
    }
    for type_, text in named.items():
        if text is not None:
            return type_, *parse_pattern(text)
    if rule.resource is None or rule.resource.name is None:
        return ResourceType.cluster, CLUSTER.name, PatternType.LITERAL
    return _TYPES[rule.resource.type], rule.resource.name, _PATTERNS[rule.resource.pattern or "Literal"]
