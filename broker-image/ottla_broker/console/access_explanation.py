"""Why the brokers allow or refuse an operation, in one sentence. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ottla_broker.security.acl_explanation import explain
from ottla_broker.security.acl_index import Verdict
from ottla_broker.security.acls import WILDCARD, AccessControlEntry
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.security.principal import Principal
from ottla_broker.security.restricted_super_users import RestrictedSuperUsers


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """`super_users`: principals as text. `restricted`: operations that `restricted.super.users`
    allows, by principal.
    """

    super_users: Collection[str]
    restricted: RestrictedSuperUsers
    allow_if_no_acl: bool


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """`deciding`: the entry that decides; None if none does. `matching`: of the entries whose
    pattern matches the resource, those about the principal.
    """

    is_allowed: bool
    reason: str
    deciding: AccessControlEntry | None = None
    matching: tuple[AccessControlEntry, ...] = ()


def decide_access(
    entries: Iterable[AccessControlEntry],
    settings: AuthorizerSettings,
    principal: Principal,
    host: str,
    operation: Operation,
    resource: Resource,
) -> AccessDecision:
    """The authorizer's decision, with its reason. `entries`: all access control entries."""
    found = explain(entries, principal, host, operation, resource)
    about = (str(principal), f"{principal.kind}:{WILDCARD}")
    matching = tuple(one for one in found.matching if one.principal in about)
    if str(principal) in settings.super_users:
        return AccessDecision(True, f"{principal} is one of super.users.", None, matching)
    if (resource.kind, operation) in settings.restricted.get(str(principal), ()):
        return AccessDecision(True, f"restricted.super.users allows it to {principal}.", None, matching)
    if found.deciding is not None:
        is_allowed = found.verdict is Verdict.ALLOWED
        reason = "A rule allows it." if is_allowed else "A rule denies it; denials take precedence."
        return AccessDecision(is_allowed, reason, found.deciding, matching)
    if found.verdict is Verdict.NO_MATCHING_ENTRY:
        if settings.allow_if_no_acl:
            reason = "No rule is about the resource, and allow.everyone.if.no.acl.found is true."
            return AccessDecision(True, reason)
        return AccessDecision(False, "No rule is about the resource.")
    return AccessDecision(False, f"No rule allows it to {principal} from this host.", None, matching)
