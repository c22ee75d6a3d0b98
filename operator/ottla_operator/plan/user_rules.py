"""The access control entries that a User asks for: its own rules and those of AccessPolicies. Pure.

Invariants: a user never has more because a policy cannot be used. What only that policy allows is
removed, as Kubernetes does where a Role is missing; denials stay, because the policy may have had
them. A user of a tenant has entries only for names that begin with the tenant.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.security.acls import WILDCARD, AccessControlEntry, PatternType, Permission
from ottla_broker.security.authorizer import CLUSTER, Operation, ResourceType
from ottla_operator.plan.acl_patterns import camel_case, parse_pattern
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.acl_rule import AclRule, is_about_cluster
from ottla_operator.resources.common import tenant_prefix
from ottla_operator.resources.user import User

_OPERATIONS: Final = {camel_case(it.name): it for it in Operation}
_TYPES: Final = {camel_case(it.name): it for it in ResourceType}
_PATTERNS: Final = {"Literal": PatternType.LITERAL, "Prefixed": PatternType.PREFIXED}
WHOLE_TENANT: Final = (
    AclRule(allow=["All"], topic=WILDCARD),
    AclRule(allow=["All"], group=WILDCARD),
    AclRule(allow=["All"], transactional_id=WILDCARD),
)
"""Rules of a user of a tenant whose resource has none."""


def policy_names(user: User) -> tuple[str, ...]:
    return tuple(it.name for it in user.spec.acls_from or ())


def unusable_policies(user: User, policies: Mapping[str, AccessPolicy | None]) -> dict[str, str]:
    """Policies that the user asks for and cannot have, and why."""
    return {name: why for name in policy_names(user) if (why := _find_obstacle(user, policies.get(name)))}


def _find_obstacle(user: User, policy: AccessPolicy | None) -> str:
    if policy is None:
        return "does not exist, is being deleted or is invalid"
    if user.spec.tenant is not None and any(is_about_cluster(it.to_json()) for it in policy.spec.acls):
        return "has rules about the cluster, which no user of a tenant may have"
    return ""


def has_rules(user: User) -> bool:
    """True if the user asks for rules, so that its Cluster has to decide by them."""
    return bool(user.spec.acls or user.spec.acls_from or user.spec.tenant)


def desired_entries(
    user: User, principal: str, policies: Mapping[str, AccessPolicy | None]
) -> frozenset[AccessControlEntry] | None:
    """None: the user's rules are not managed."""
    own, tenant = user.spec.acls, user.spec.tenant
    if own is None and user.spec.acls_from is None:
        if tenant is None:
            return None
        own = list(WHOLE_TENANT)
    usable = [it for it in policy_names(user) if it not in unusable_policies(user, policies)]
    named_policies = [policies[it] for it in usable]
    rules = [*(own or ()), *(rule for it in named_policies if it is not None for rule in it.spec.acls)]
    return frozenset(entry for rule in rules for entry in _entries(rule, principal, tenant_prefix(tenant)))


def _entries(rule: AclRule, principal: str, prefix: str) -> Iterable[AccessControlEntry]:
    """`prefix`: that names of the user's tenant begin with; empty without a tenant."""
    permission = Permission.ALLOW if rule.allow else Permission.DENY
    type_, name, pattern = _resource(rule)
    if prefix:
        name, pattern = (prefix, PatternType.PREFIXED) if name == WILDCARD else (f"{prefix}{name}", pattern)
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
