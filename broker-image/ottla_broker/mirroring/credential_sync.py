"""SCRAM credentials of users that a mirror copies (its setting `users`), so that they log in here
with their passwords after a failover.

A credential that was set here is never changed: only those that the mirror has copied follow the
source, and are removed when the source no longer has them. Principals that are super users here,
restricted ones too, are left out: the source's administrators must not become those of this
cluster.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import DescribeUserScramCredentialsResponse

from ottla_broker.metadata.image import CREDENTIALS_RESOURCE
from ottla_broker.mirroring.mirror_config import matches_name
from ottla_broker.mirroring.source_cluster import UNKNOWN_RESOURCE_ERRORS, describe_resources
from ottla_broker.security.scram import MECHANISMS, ScramCredential, parse_credential
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

CredentialKey = tuple[str, int]
"""User and mechanism."""
Credentials = Mapping[CredentialKey, ScramCredential]
NO_API: Final = "the source does not return its users' credentials; Apache Kafka never does"


@dataclass(frozen=True, slots=True)
class CredentialChanges:
    """`skipped`: users of the source who are not copied, because they have credentials here that
    this mirror has not copied, or are super users here.
    """

    to_set: Credentials
    to_remove: tuple[CredentialKey, ...]
    skipped: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.to_set or self.to_remove)


def plan_credential_sync(
    mirror: str,
    patterns: Sequence[str],
    at_source: Credentials,
    at_target: Credentials,
    owners: Mapping[CredentialKey, str],
    super_users: Collection[str],
) -> CredentialChanges:
    """`mirror`: its name. `at_source`: credentials of users that match `patterns`. `at_target`: all
    credentials here. `owners`: the mirrors that have copied them. `super_users`: principals here,
    with the restricted ones.
    """
    to_set, skipped = dict[CredentialKey, ScramCredential](), dict[str, None]()
    for key, credential in at_source.items():
        user, _ = key
        is_own = key not in at_target or owners.get(key) == mirror
        if f"User:{user}" in super_users or not is_own:
            skipped[user] = None
        elif at_target.get(key) != credential:
            to_set[key] = credential
    removed = tuple(
        (user, mechanism)
        for (user, mechanism), owner in owners.items()
        if owner == mirror and (user, mechanism) not in at_source and matches_name(user, patterns)
    )
    return CredentialChanges(to_set, removed, tuple(skipped))


async def fetch_credentials(source: Client, patterns: Sequence[str]) -> dict[CredentialKey, ScramCredential]:
    """The credentials of the source's users that match. Raises KafkaError, OSError, TimeoutError:
    nothing is known then, and nothing may be removed.
    """
    listed: DescribeUserScramCredentialsResponse = await source.send(DescribeUserScramCredentialsRequest(users=None))
    if listed.error_code is not ErrorCode.none:
        raise _unreadable(listed.error_code, listed.error_message or "")
    names = [it.user for it in listed.results if matches_name(it.user, patterns)]
    found: dict[CredentialKey, ScramCredential] = {}
    async for result in describe_resources(source, CREDENTIALS_RESOURCE, names, ()):
        if result.error_code is not ErrorCode.none:
            is_unknown = result.error_code in UNKNOWN_RESOURCE_ERRORS
            raise _unreadable(result.error_code, NO_API if is_unknown else result.error_message or "")
        values = {it.name: it.value or "" for it in result.configs}
        found |= _parse(result.resource_name, values)
    return found


def _parse(user: str, values: Mapping[str, str]) -> dict[CredentialKey, ScramCredential]:
    def credentials() -> Iterator[tuple[CredentialKey, ScramCredential]]:
        for title, text in values.items():
            if (mechanism := MECHANISMS.get(title)) is not None:
                yield (user, mechanism), parse_credential(mechanism, text)

    try:
        return dict(credentials())
    except ValueError as reason:
        raise _unreadable(ErrorCode.invalid_config, f"user {user!r}: {reason}") from None


def _unreadable(code: ErrorCode, reason: str) -> KafkaError:
    return KafkaError(code, f"credentials cannot be read (users): {reason or code.name}")
