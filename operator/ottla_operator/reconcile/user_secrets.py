"""Reads, completes and writes the Secrets of users. A new password is set at the brokers
first.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ottla_operator.certificates.client_certificate import maintain_client_certificate, make_stores
from ottla_operator.certificates.internal_authority import authority_secret_name
from ottla_operator.plan.conditions import Reconciling, Stalled
from ottla_operator.plan.listener_certificates import has_authority
from ottla_operator.plan.listener_certificates import secret_name as tls_secret_name
from ottla_operator.plan.scram_login import generate_password
from ottla_operator.plan.source_credentials import ObservedSecret, SecretUnusable, read_secret_value
from ottla_operator.plan.user_secret import (
    KEYSTORE,
    MECHANISM,
    PASSWORD,
    STORE_PASSWORD,
    TRUSTSTORE,
    ClientAccess,
    Contents,
    certificate_secret,
    check_password,
    client_access,
    find_listener,
    is_password_set,
    scram_secret,
)
from ottla_operator.plan.users import UserResource, mechanism_of
from ottla_operator.reconcile.platform import Blocked, Platform
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import format_time
from ottla_operator.resources.model import Json
from ottla_operator.resources.user import User, UserCertificateStatus

RECHECK_S: Final = 60.0
"""Secrets are not watched: one that was edited or deleted is rewritten within this time.
"""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """`data`: data of the Secret; None without one. `is_password_set`: whether brokers have this
    password already. `is_current`: whether the Secret has this data already. `certificate`: that
    of a user with TLS; `issue_reason`: why it was issued now; empty if it was issued before.
    """

    secret_name: str = ""
    data: Contents | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)
    is_password_set: bool = True
    is_current: bool = True
    certificate: UserCertificateStatus | None = None
    issue_reason: str = ""

    @property
    def expiry(self) -> str:
        return self.certificate.not_after if self.certificate else ""


class _Check(NamedTuple):
    """A check that a Secret is current. `inputs`: what its data follow from. `at_s`: of the event
    loop's time.
    """

    inputs: object
    at_s: float
    credentials: ClientCredentials


@dataclass(slots=True)
class UserSecrets:
    platform: Platform
    recheck_s: float = RECHECK_S
    _checked: dict[str, _Check] = field(default_factory=dict)
    """The last check of each user's Secret, by the User's uid."""

    async def prepare(self, resource: UserResource, cluster: Cluster, body: Json) -> ClientCredentials:
        """`body`: the Cluster's. Raises Blocked while the Secret cannot be completed."""
        user = resource.parsed
        assert user is not None
        if user.spec.authentication.type == "External":
            return ClientCredentials()
        bootstrap = (body.get("status") or {}).get("bootstrap") or {}
        inputs = (user, cluster.spec, tuple(sorted(bootstrap.items())))
        now_s = asyncio.get_running_loop().time()
        last = self._checked.get(resource.uid)
        if last is not None and last.inputs == inputs and now_s - last.at_s < self.recheck_s:
            return last.credentials
        try:
            credentials = await self._read(resource, user, cluster, bootstrap)
        except SecretUnusable as error:
            raise Blocked(Stalled("CredentialsUnusable", str(error))) from error
        if credentials.is_current:
            self._checked[resource.uid] = _Check(inputs, now_s, credentials)
        else:
            self._checked.pop(resource.uid, None)
        return credentials

    def forget(self) -> None:
        """Frees memory; every Secret is read again."""
        self._checked.clear()

    async def _read(
        self, resource: UserResource, user: User, cluster: Cluster, bootstrap: Mapping[str, str]
    ) -> ClientCredentials:
        authentication, mechanism = user.spec.authentication, mechanism_of(user)
        if mechanism is None and not has_authority(cluster):
            message = (
                f"Cluster {cluster.name} has no certificate authority of its own: set its tls.issuer to Internal, or "
            )
            message += "authentication.type to External for a client whose certificate others have issued"
            raise Blocked(Stalled("AuthorityNotFound", message))
        if (listener := find_listener(cluster, user)) is None:
            needed = "SCRAM" if mechanism else authentication.type
            message = f"Cluster {cluster.name} has no listener with authentication {needed}"
            raise Blocked(Stalled("ListenerNotFound", message))
        source = authentication.password_from
        names = {*([source.name] if source else []), *filter(None, [tls_secret_name(cluster)])}
        names |= set() if mechanism else {authority_secret_name(cluster)}
        secrets = await self.platform.read_secrets(cluster.metadata.namespace, sorted(names))
        access = client_access(listener, bootstrap, secrets.get(tls_secret_name(cluster)))
        if access is None:
            message = f"the address of listener {listener.name} of Cluster {cluster.name} is not known yet"
            raise Blocked(Reconciling("ClusterNotReady", message))
        existing = await self.platform.read_user_secret(cluster, user)
        if mechanism is None:
            return _certificate_credentials(resource, user, cluster, access, existing, secrets)
        if source is None:
            # Another mechanism gets another password: the previous one may stay valid beside it.
            is_rotated = existing.get(MECHANISM, mechanism.title) != mechanism.title
            stored_password = "" if is_rotated else str(existing.get(PASSWORD, ""))
            password = stored_password or generate_password()
            check_password(password, f"Secret {user.secret_name}: {PASSWORD}")
        else:
            where = "spec.authentication.passwordFrom"
            password = read_secret_value(secrets, source.name, source.key, where)
            check_password(password, f"{where}: {source.key} of Secret {source.name}")
        data = scram_secret(user.user_name, password, mechanism, access)
        is_set = is_password_set(existing, user.user_name, password, mechanism)
        return ClientCredentials(user.secret_name, data, password, is_set, existing == data)

    async def write(self, resource: UserResource, credentials: ClientCredentials) -> None:
        """Writes the Secret, if it differs, after the brokers have its password. Raises Blocked if
        another object has its name or the platform rejects it, SecretUnusable if it may not be
        read.
        """
        if credentials.data is not None and not credentials.is_current:
            await self.platform.write_user_secret(resource.body, credentials.secret_name, credentials.data)


def _certificate_credentials(
    resource: UserResource,
    user: User,
    cluster: Cluster,
    access: ClientAccess,
    existing: Contents,
    secrets: Mapping[str, ObservedSecret],
) -> ClientCredentials:
    """The credentials for the Secret of a user with TLS. Raises Blocked, SecretUnusable."""
    found = maintain_client_certificate(user, cluster, existing, secrets, time.time())
    if found is None:
        message = f"Cluster {cluster.name} has no certificate authority yet"
        raise Blocked(Reconciling("ClusterNotReady", message))
    password = str(existing.get(STORE_PASSWORD) or generate_password())
    keystore, truststore = make_stores(found, existing, password)
    access = replace(access, authorities=found.authorities)
    data: Contents = {
        **certificate_secret(resource.user_name, found.certificate, found.key, access),
        KEYSTORE: keystore,
        TRUSTSTORE: truststore,
        STORE_PASSWORD: password,
    }
    status = UserCertificateStatus(
        not_after=format_time(found.validity.not_after), renewal_time=format_time(found.validity.renewal_time)
    )
    return ClientCredentials(
        user.secret_name, data, is_current=existing == data, certificate=status, issue_reason=found.issue_reason
    )
