"""SCRAM credentials of the source's users that a mirror copies, and one that is the target's own.

Brokers give credentials only to clients that have logged in, so the source has a listener with
logins for the mirror.
"""

from collections.abc import Iterator
from typing import Final

from ottla_broker.security.scram import ScramMechanism
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import newest_image

PORT: Final = 9093
ADMIN: Final = "access-1"
"""The client that creates and deletes credentials at the source. Its name is the beginning of their
users' names.
"""
PATTERN: Final = f"{ADMIN}-*"
OWN_USER: Final = f"{ADMIN}-own"
"""A user of both clusters that the target has created itself."""
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"

SOURCE_SETTINGS: Final = {
    "listeners": f"PLAINTEXT://{{host}}:9092,MIRRORS://{{host}}:{PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MIRRORS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.mirrors.plain.sasl.jaas.config": f'{_MODULE} required user_mirror="secret";',
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:mirror",
}


def mirror_settings(source: SimulatedCluster) -> dict[str, str]:
    return {
        "bootstrap.servers": ",".join(f"{broker.host}:{PORT}" for broker in source),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "mirror",
        "sasl.password": "secret",
        "users": PATTERN,
    }


def unsettled_credentials(
    source: SimulatedCluster, target: SimulatedCluster, mirror: str, *, is_active: bool
) -> Iterator[str]:
    """Differences between credentials of the source and their copies. `is_active`: the mirror has
    not failed over and follows the source.
    """
    original, image = newest_image(source), newest_image(target)
    if original is None or image is None:
        return
    at_source, at_target, owners = original.scram_credentials, image.scram_credentials, image.mirrored_credentials
    own = (OWN_USER, ScramMechanism.SHA_256)
    if own not in at_target or own in owners:
        yield f"the target's own credential of {OWN_USER} is {'replaced' if own in at_target else 'removed'}"
    if not is_active:
        return
    for key, credential in at_source.items():
        if key != own and at_target.get(key) != credential:
            yield f"the credential of {key[0]} is not that of the source"
    for key, owner in owners.items():
        if owner == mirror and key not in at_source:
            yield f"the credential of {key[0]}, which the source has removed, still exists"


def copied_users(target: SimulatedCluster, mirror: str) -> list[str]:
    image = newest_image(target)
    return [] if image is None else [user for (user, _), owner in image.mirrored_credentials.items() if owner == mirror]
