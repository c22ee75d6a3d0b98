"""Plans the changes that give a user the credential, access rules and quotas of its User resource.
Pure.

Invariants: after the changes are applied, planning again yields nothing. A list that the resource
leaves out (`acls`, `quotas`) is not changed; entries of the user that a list lacks are removed. A
user whose resource was deleted has neither credentials nor rules nor quotas.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla_broker.security.acls import AccessControlEntry, Permission
from ottla_broker.security.scram import MECHANISMS, ScramMechanism
from ottla_operator.certificates.client_certificate import NoPrincipal, principal_name
from ottla_operator.formatting import format_count, format_list
from ottla_operator.plan.acl_patterns import describe_entry
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.inter_broker_login import RESERVED_USERS
from ottla_operator.plan.owners import oldest_owners
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.plan.user_rules import desired_entries, unusable_policies
from ottla_operator.resources.access_policy import AccessPolicy
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json
from ottla_operator.resources.user import User
from ottla_operator.resources.validation import find_spec_problems


@dataclass(frozen=True, slots=True)
class DesiredUser:
    """The desired state of a user. `mechanism`: None for a user without a password.
    `is_password_set`: True if the brokers have this password. `acls`, `quotas`: None if they are
    not managed. `keeps_denials`: the user's DENY entries stay although `acls` lacks them.
    """

    name: str
    mechanism: ScramMechanism | None = None
    is_password_set: bool = True
    acls: frozenset[AccessControlEntry] | None = None
    keeps_denials: bool = False
    quotas: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class ObservedUser:
    """A user on the brokers. `acls`: entries of the principal User:NAME."""

    mechanisms: frozenset[ScramMechanism] = frozenset()
    acls: frozenset[AccessControlEntry] = frozenset()
    quotas: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserChanges:
    """The changes that give a user what its resource asks for. `quotas`: new value by name; None
    removes the quota.
    """

    set_password: ScramMechanism | None = None
    remove_credentials: tuple[ScramMechanism, ...] = ()
    add_acls: tuple[AccessControlEntry, ...] = ()
    remove_acls: tuple[AccessControlEntry, ...] = ()
    quotas: Mapping[str, float | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.set_password is not None or bool(
            self.remove_credentials or self.add_acls or self.remove_acls or self.quotas
        )


def plan_user_changes(desired: DesiredUser, observed: ObservedUser) -> UserChanges:
    has_password = desired.is_password_set and desired.mechanism in observed.mechanisms
    acls, quotas = desired.acls, desired.quotas
    if acls is not None and desired.keeps_denials:
        acls |= {it for it in observed.acls if it.permission == Permission.DENY}
    return UserChanges(
        None if has_password else desired.mechanism,
        tuple(sorted(observed.mechanisms - {desired.mechanism})),
        () if acls is None else tuple(sorted(acls - observed.acls, key=_order)),
        () if acls is None else tuple(sorted(observed.acls - acls, key=_order)),
        {} if quotas is None else _quota_changes(quotas, observed.quotas),
    )


def previous_credential_end(
    changes: UserChanges, overlap_ms: int, known_end: datetime.datetime | None, now: datetime.datetime
) -> datetime.datetime | None:
    """Time until which credentials of other mechanisms remain, so that clients have time to get the
    new password; None if they are removed now.

    `known_end`: the time that was decided when the password of the new mechanism was set.
    Credentials that are added later by others are removed at once.
    """
    if not changes.remove_credentials or not overlap_ms:
        return None
    if known_end is None and changes.set_password is not None:
        return now + datetime.timedelta(milliseconds=overlap_ms)
    return known_end if known_end is not None and known_end > now else None


def plan_user_removal(observed: ObservedUser) -> UserChanges:
    """Takes away everything that a user has."""
    return plan_user_changes(DesiredUser("", None, acls=frozenset(), quotas={}), observed)


def _quota_changes(desired: Mapping[str, float], observed: Mapping[str, float]) -> dict[str, float | None]:
    to_set: dict[str, float | None] = {key: it for key, it in desired.items() if observed.get(key) != it}
    return to_set | dict.fromkeys(sorted(observed.keys() - desired.keys()))


def _order(entry: AccessControlEntry) -> tuple[object, ...]:
    return (entry.resource_type, entry.resource_name, entry.pattern_type, entry.operation, entry.permission, entry.host)


def desired_user(
    user: User, name: str, policies: Mapping[str, AccessPolicy | None], *, is_password_set: bool
) -> DesiredUser:
    """`name`: by which brokers know the user. `policies`: those that the user names; None for one
    that does not exist, is being deleted or is invalid. `is_password_set`: whether the brokers have
    the user's password; for users with one.
    """
    quotas = user.spec.quotas
    return DesiredUser(
        name,
        mechanism_of(user),
        is_password_set,
        desired_entries(user, principal_of(name), policies),
        bool(unusable_policies(user, policies)),
        None if quotas is None else _quotas(quotas.to_json()),
    )


def mechanism_of(user: User) -> ScramMechanism | None:
    return MECHANISMS.get(user.spec.authentication.type)


def principal_of(user_name: str) -> str:
    return f"User:{user_name}"


def _quotas(values: dict[str, Json]) -> dict[str, float]:
    """Quotas by Kafka's names: producerByteRate is producer_byte_rate."""
    return {"".join(f"_{it.lower()}" if it.isupper() else it for it in key): float(it) for key, it in values.items()}


def describe_changes(changes: UserChanges) -> str:
    """The changes as text for an event, without passwords."""
    parts = [f"password set for {changes.set_password.title}"] if changes.set_password else []
    parts += [f"credential for {it.title} removed" for it in changes.remove_credentials]
    for entries, done in ((changes.add_acls, "added"), (changes.remove_acls, "removed")):
        if entries:
            parts.append(f"{format_count(len(entries), 'rule')} {done}: {format_list(map(describe_entry, entries))}")
    parts += [f"{key} unset" if it is None else f"{key}={it:g}" for key, it in changes.quotas.items()]
    return "; ".join(parts)


@dataclass(slots=True)
class UserResource(StoredResource[User]):
    """`user_name`: by which brokers know the user; empty if the resource is invalid."""

    user_name: str = ""

    @classmethod
    def of_cluster(cls, cluster: Cluster | None, body: Json) -> "UserResource":
        """`cluster`: None if it does not exist, or its spec is invalid."""
        if problems := find_spec_problems(body):
            return cls(body, None, problems)
        user = User.parse_stored(body)
        try:
            name = user.user_name if cluster is None else principal_name(user, cluster)
        except NoPrincipal as reason:
            return cls(body, None, str(reason))
        if name in RESERVED_USERS:
            message = f"user name {name} is that of the brokers or of the operator; allowed: any other"
            return cls(body, None, message)
        return cls(body, user, "", name)


def user_owners(resources: Iterable[UserResource]) -> dict[str, UserResource]:
    """User name → the resource that owns it, of several the oldest. Invalid ones own nothing."""
    return oldest_owners(resources, lambda it: it.user_name or None)


def secret_owners(resources: Iterable[UserResource]) -> dict[str, UserResource]:
    """Name of a Secret → the resource whose credentials it has, of several the oldest."""
    return oldest_owners(resources, _find_secret_name)


def find_obstacle(
    resource: UserResource, owners: Mapping[str, UserResource], owners_of_secrets: Mapping[str, UserResource]
) -> Stalled | None:
    """Why the resource cannot be applied: it is invalid, or an older one has its user name or its
    Secret. None if it can.
    """
    conflict = resource.find_conflict(owners.get(resource.user_name), f"user name {resource.user_name}")
    secret = _find_secret_name(resource)
    if conflict is not None or secret is None:
        return conflict
    return resource.find_conflict(owners_of_secrets.get(secret), f"Secret {secret}")


def _find_secret_name(resource: UserResource) -> str | None:
    """None for invalid resources, and for External ones, which have no Secret."""
    user = resource.parsed
    return None if user is None or user.spec.authentication.type == "External" else user.secret_name
