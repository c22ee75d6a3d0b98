"""SCRAM credentials of users (DescribeUserScramCredentials, AlterUserScramCredentials).

Brokers get the salted password, never the password.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.static.primitive import i8, i32

from ottla_broker.security.scram import SALT_BYTES, ScramMechanism
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_operator.kafka.client import KafkaClient, find_error, raise_for_error


@dataclass(frozen=True, slots=True)
class SetPassword:
    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveCredential:
    user: str
    mechanism: ScramMechanism


async def describe_scram_users(client: KafkaClient) -> dict[str, dict[ScramMechanism, int]]:
    """User → mechanism → iterations. Users without a credential are left out."""
    response = await client.send_to_controller(DescribeUserScramCredentialsRequest(users=None))
    raise_for_error(response.error_code, response.error_message, "users")
    found: dict[str, dict[ScramMechanism, int]] = {}
    for result in response.results:
        subject, allow = f"user {result.user!r}", (ErrorCode.resource_not_found,)
        raise_for_error(result.error_code, result.error_message, subject, allow=allow)
        if result.credential_infos:
            found[result.user] = {ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos}
    return found


async def alter_scram_users(
    client: KafkaClient, changes: Iterable[SetPassword | RemoveCredential]
) -> Mapping[str, KafkaError]:
    """Changes credentials. Returns the error of each user that was refused."""
    requested = list(changes)
    if not requested:
        return {}
    passwords = [it for it in requested if isinstance(it, SetPassword)]
    response = await client.send_to_controller(
        AlterUserScramCredentialsRequest(
            deletions=tuple(
                ScramCredentialDeletion(name=it.user, mechanism=i8(it.mechanism))
                for it in requested
                if isinstance(it, RemoveCredential)
            ),
            # In a thread: each password takes milliseconds of computing.
            upsertions=await asyncio.to_thread(lambda: tuple(map(_upsertion, passwords))),
        )
    )
    errors: dict[str, KafkaError] = {}
    for result in response.results:
        error = find_error(result.error_code, result.error_message, f"user {result.user!r}")
        if error is not None:
            errors[result.user] = error
    return errors


def _upsertion(change: SetPassword) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    digest, password = change.mechanism.digest, change.password.encode()
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=i8(change.mechanism),
        iterations=i32(change.iterations),
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(digest, password, salt, change.iterations),
    )
