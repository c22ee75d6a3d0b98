"""Logins of Pipelines and Mirrors at a Cluster: as a User that the operator creates, or one that
the spec names.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.sasl import MIN_ITERATIONS
from ottla_operator.plan.component_users import (
    CERTIFICATE,
    mirror_user,
    mirror_user_name,
    needs_mirror_user,
    needs_pipeline_user,
    pipeline_user,
    pipeline_user_name,
)
from ottla_operator.plan.conditions import READY, Reconciling, Stalled, describe_unready, find_condition, kstatus
from ottla_operator.plan.listener_certificates import AUTHORITIES
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.plan.user_secret import CERTIFICATE as USER_CERTIFICATE
from ottla_operator.plan.user_secret import JAAS, MECHANISM, PASSWORD, USERNAME
from ottla_operator.plan.user_secret import KEY as USER_KEY
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.reconcile.watch_cache import Key
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.user import User

RETRY_S: Final = 1.0
BOOTSTRAP, PROTOCOL = "bootstrap.servers", "security.protocol"
LOGIN_KEYS: Final = (PROTOCOL, MECHANISM, JAAS)
"""Keys of the Secret of a User with a password that Java clients need besides addresses and
authorities.
"""
PASSWORD_KEYS: Final = (*LOGIN_KEYS, USERNAME, PASSWORD)
CERTIFICATE_KEYS: Final = (PROTOCOL, USER_CERTIFICATE, USER_KEY)
EXTERNAL: Final = "External"


@dataclass(frozen=True, slots=True)
class ComponentLogin:
    """`secret`: name of the User's Secret. `values`: data of the Secret, by key. `digest`: changes
    when clients have to log in again.
    """

    secret: str
    values: Mapping[str, str] = field(repr=False)
    digest: str

    @property
    def bootstrap(self) -> str:
        return self.values[BOOTSTRAP]

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the Secret that a client reads as files."""
        return _login_keys(self.values)


async def pipeline_login(
    platform: Platform, resource: Json, pipeline: Pipeline, cluster: Cluster
) -> ComponentLogin | None:
    """The login of a pipeline's driver; None if it connects without one. Creates the pipeline's own
    User, or deletes one that it no longer needs. Raises Blocked until the driver can log in.
    """
    key, name = Key(pipeline.metadata.namespace, cluster.name), pipeline_user_name(pipeline)
    if needs_pipeline_user(pipeline, cluster):
        found = await platform.ensure_component_user(resource, pipeline_user(pipeline, cluster))
        return await _login_of(platform, cluster, name, found)
    await platform.delete_component_user(resource, key, name)
    if pipeline.spec.user_ref is None:
        return None
    name = pipeline.spec.user_ref.name
    return await _login_of(platform, cluster, name, await platform.find_user(key, name))


async def mirror_login(platform: Platform, resource: Json, mirror: Mirror, source: Cluster) -> ComponentLogin | None:
    """The login of the target's brokers at a source that is a Cluster; None if they need none, or
    the spec has credentials. Creates or deletes the mirror's own User. Raises Blocked until they
    can log in.
    """
    name = mirror_user_name(mirror)
    if not needs_mirror_user(mirror, source):
        await platform.delete_component_user(resource, Key(mirror.metadata.namespace, source.name), name)
        return None
    found = await platform.ensure_component_user(resource, mirror_user(mirror, source))
    return await _login_of(platform, source, name, found)


async def _login_of(platform: Platform, cluster: Cluster, name: str, body: Json | None) -> ComponentLogin:
    """The login in the Secret of a User. Raises Blocked until it is complete."""
    if body is None:
        message = f"User {name} of Cluster {cluster.name} does not exist yet, or its last change was not observed yet"
        raise Blocked(Reconciling("WaitingForUser", message), RETRY_S)
    ready = find_condition(body, READY)
    if kstatus(body) == "Failed":
        raise Blocked(Stalled("UserNotReady", f"User {name} is not ready: {ready.get('message')}"), RETRY_S)
    if kstatus(body) != "Current" or ready.get("status") != "True":
        message = f"User {name} is not ready: {describe_unready(body)}"
        raise Blocked(Reconciling("WaitingForUser", message), RETRY_S)
    user = User.parse_stored(body)
    try:
        found = await platform.read_user_secret(cluster, user)
    except SecretUnusable as error:
        raise Blocked(Reconciling("CredentialsUnusable", str(error))) from error
    values = {key: it for key, it in found.items() if isinstance(it, str)}
    has_certificate = user.spec.authentication.type == CERTIFICATE
    needed = CERTIFICATE_KEYS if has_certificate else PASSWORD_KEYS
    if missing := [it for it in (BOOTSTRAP, *needed) if not values.get(it)]:
        if has_certificate:  # the Secret has a password still, or is not written yet
            raise Blocked(Reconciling("WaitingForUser", f"User {name} has no certificate yet"), RETRY_S)
        if user.spec.authentication.type == EXTERNAL:
            message = f"User {name} has no Secret to log in with: its authentication has to be SCRAM or TLS"
            raise Blocked(Stalled("UserNotReady", message), RETRY_S)
        message = f"the Secret of User {name} has no {', '.join(missing)} yet"
        raise Blocked(Reconciling("WaitingForUser", message), RETRY_S)
    return ComponentLogin(user.secret_name, values, _digest(values, str(body["metadata"]["uid"])))


def _login_keys(values: Mapping[str, str]) -> tuple[str, ...]:
    keys = CERTIFICATE_KEYS if USER_KEY in values else LOGIN_KEYS
    return (*keys, AUTHORITIES) if AUTHORITIES in values else keys


def _digest(values: Mapping[str, str], uid: str) -> str:
    """Digest of the login. Guessing a password from it costs as much as from the SCRAM credential
    that brokers store.
    """
    text = "\0".join(values[key] for key in _login_keys(values))
    return hashlib.pbkdf2_hmac("sha512", text.encode(), uid.encode(), MIN_ITERATIONS)[:5].hex()
