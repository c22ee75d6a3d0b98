"""Observes the users on the brokers, and applies the changes that `plan/users.py` plans: those of
all users in common requests.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.security.acls import AccessControlEntry
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka import acls, quotas, scram
from ottla_operator.kafka.client import KafkaClient
from ottla_operator.plan.users import ObservedUser, UserChanges, principal_of

PASSWORD_ITERATIONS: Final = 4096
"""Kafka's minimum. Generated passwords are 192 random bits, which no number of iterations makes
harder to guess.
"""
MAX_USERS_IN_REQUEST: Final = 200


@dataclass(frozen=True, slots=True)
class ObservedUsers:
    """`has_acls`: True if the brokers have an authorizer. `has_quotas`: True if they support
    quotas.
    """

    by_name: Mapping[str, ObservedUser]
    has_acls: bool
    has_quotas: bool

    def of(self, name: str) -> ObservedUser:
        return self.by_name.get(name, ObservedUser())


@dataclass(frozen=True, slots=True)
class UserChange:
    """`password`: to be set if `changes.set_password` is not None. `previous_until`: until
    when credentials of other mechanisms remain; None if there are none, or `changes` removes them.
    """

    user: str
    changes: UserChanges
    password: str = field(default="", repr=False)
    previous_until: datetime.datetime | None = None


async def observe_users(client: KafkaClient) -> ObservedUsers:
    """Observes all users with three requests. Raises KafkaError."""
    credentials = await scram.describe_scram_users(client)
    try:
        entries, has_acls = await acls.describe_acls(client), True
    except KafkaError as error:
        if error.code is not ErrorCode.security_disabled:
            raise
        entries, has_acls = [], False
    limits = await quotas.describe_user_quotas(client)
    by_principal: dict[str, set[AccessControlEntry]] = {}
    for entry in entries:
        by_principal.setdefault(entry.principal, set()).add(entry)
    prefix = principal_of("")
    names = {*credentials, *(limits or {}), *(it.removeprefix(prefix) for it in by_principal if it.startswith(prefix))}
    by_name = {
        name: ObservedUser(
            frozenset(credentials.get(name, ())),
            frozenset(by_principal.get(principal_of(name), ())),
            (limits or {}).get(name, {}),
        )
        for name in names
    }
    return ObservedUsers(by_name, has_acls, limits is not None)


async def apply_user_changes(client: KafkaClient, changes: Iterable[UserChange]) -> dict[str, KafkaError]:
    """Applies the changes. Returns the errors by user; users without one have no entry.

    Credentials of users who get no password are removed first, and passwords are set last, so that
    a user never has a password before its DENY rules. A password replaces another in one step, and
    rules are added before those that they replace are removed. Raises KafkaError if brokers refuse
    to remove a rule, Unreachable; earlier changes stay.
    """
    needed = [it for it in changes if it.changes]
    errors: dict[str, KafkaError] = {}
    for start in range(0, len(needed), MAX_USERS_IN_REQUEST):
        chunk = needed[start : start + MAX_USERS_IN_REQUEST]
        errors |= await _change_credentials(client, [it for it in chunk if it.changes.set_password is None])
        errors |= await _change_acls(client, chunk)
        errors |= await _change_quotas(client, chunk)
        passwords = [it for it in chunk if it.changes.set_password is not None and it.user not in errors]
        errors |= await _change_credentials(client, passwords)
    return errors


async def _change_credentials(client: KafkaClient, changes: Sequence[UserChange]) -> Mapping[str, KafkaError]:
    alterations: list[scram.SetPassword | scram.RemoveCredential] = []
    for change in changes:
        alterations += [scram.RemoveCredential(change.user, it) for it in change.changes.remove_credentials]
        if change.changes.set_password is not None:
            alterations.append(
                scram.SetPassword(change.user, change.changes.set_password, change.password, PASSWORD_ITERATIONS)
            )
    return await scram.alter_scram_users(client, alterations)


async def _change_acls(client: KafkaClient, changes: Sequence[UserChange]) -> dict[str, KafkaError]:
    refused = await acls.create_acls(client, [entry for it in changes for entry in it.changes.add_acls])
    await acls.delete_acls(client, [acls.filter_for_entry(entry) for it in changes for entry in it.changes.remove_acls])
    return {entry.principal.removeprefix(principal_of("")): error for entry, error in refused.items()}


async def _change_quotas(client: KafkaClient, changes: Sequence[UserChange]) -> dict[str, KafkaError]:
    by_entity = {quotas.user_entity(it.user): it for it in changes if it.changes.quotas}
    refused = await quotas.alter_quotas(
        client, [quotas.QuotaChange(entity, it.changes.quotas) for entity, it in by_entity.items()]
    )
    return {by_entity[entity].user: error for entity, error in refused.items()}
