"""Connections of the operator to the brokers of a Cluster, with a login and TLS that all running
brokers accept.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.login_secrets import ensure_login, read_login
from ottla_operator.kube.owned_objects import ClusterObjects
from ottla_operator.kube.secrets import read_secrets
from ottla_operator.plan import listener_certificates as tls
from ottla_operator.plan.cluster_status import CERTIFICATE_UNUSABLE
from ottla_operator.plan.conditions import Stalled
from ottla_operator.plan.inter_broker_login import InterBrokerLogin, operator_security
from ottla_operator.plan.inter_broker_tls import secure_operator
from ottla_operator.plan.objects import names
from ottla_operator.plan.observed_pods import BrokerPod
from ottla_operator.plan.password_rotation import LoginSecret
from ottla_operator.plan.registry_access import RegistryAccess, registry_security
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.reconcile.platform import Blocked, BrokerAccess
from ottla_operator.resources.cluster import Cluster

RETRY_S: Final = 2.0


@dataclass(slots=True)
class BrokerConnections:
    """Logins and authorities are cached by the Cluster's uid, as its last reconcile has read
    them: Topics and Users of the Cluster connect often.
    """

    api: ApiClient
    _logins: dict[str, LoginSecret] = field(default_factory=dict)
    _authorities: dict[str, str] = field(default_factory=dict)

    async def prepare_login(
        self, cluster: Cluster, login: InterBrokerLogin, observed: ClusterObjects, due_rotation: str
    ) -> LoginSecret | None:
        """Returns the Secret with the passwords, and creates it if it is missing; None if no broker
        has a login or is to get one. Called once in each reconcile of the Cluster: later
        connections use this login, and read the authorities again. `due_rotation`: the
        `spec.rotatePasswordsAt` that is due, for which a new Secret needs no rotation. Raises
        Blocked.
        """
        self._authorities.pop(cluster.metadata.uid, None)
        if not login and not any(it.login for it in observed.pods.values()):
            self._logins.pop(cluster.metadata.uid, None)
            return None
        found = await ensure_login(self.api, cluster, observed, due_rotation)
        self._logins[cluster.metadata.uid] = found
        return found

    async def access(self, cluster: Cluster, pods: Collection[BrokerPod]) -> BrokerAccess:
        """Addresses and security to reach the brokers whose pods are ready, by a protocol that all
        running brokers have. Raises Blocked.
        """
        addresses = [it.address for it in pods if it.is_ready and it.address]
        login = self._logins.get(cluster.metadata.uid)
        if login is None and any(it.login for it in pods):
            login = await read_login(self.api, cluster)
        security = operator_security(login.in_use if login else None, [it.login for it in pods])
        if addresses and (secret := next((it.certificates for it in pods if it.tls), "")):
            host = names.pod_host(cluster, names.FIRST_BROKER)
            authorities = await self._read_authorities(cluster, secret)
            security = secure_operator(security, [it.tls for it in pods], authorities, host)
        return BrokerAccess(addresses, security)

    async def registry_access(self, cluster: Cluster, brokers: BrokerAccess) -> RegistryAccess:
        """Addresses and security to reach the registries of the brokers that are ready. Raises
        Blocked."""
        if (port := cluster.schema_registry_port) is None:
            message = f"Cluster {cluster.name} serves no schema registry: set its spec.schemaRegistry"
            raise Blocked(Stalled("NoSchemaRegistry", message))
        authorities = server_name = ""
        if cluster.registry_has_tls:
            secret = tls.secret_name(cluster)
            try:
                found = (await read_secrets(self.api, cluster.metadata.namespace, [secret])).get(secret)
            except SecretUnusable as error:
                raise Blocked(Stalled(CERTIFICATE_UNUSABLE, str(error))) from error
            authorities = found.values.get(tls.AUTHORITIES, "") if found is not None else ""
            server_name = names.service_host(cluster, names.registry_service(cluster))
        security = registry_security(cluster, brokers.security, authorities, server_name)
        if isinstance(security, str):
            raise Blocked(Stalled("NoRegistryLogin", security))
        return RegistryAccess([f"{it.rpartition(':')[0]}:{port}" for it in brokers.addresses], security)

    async def _read_authorities(self, cluster: Cluster, secret: str) -> str:
        uid = cluster.metadata.uid
        if uid not in self._authorities:
            try:
                found = await read_secrets(self.api, cluster.metadata.namespace, [secret])
            except SecretUnusable as error:
                raise Blocked(Stalled(CERTIFICATE_UNUSABLE, str(error)), RETRY_S) from error
            values = found[secret].values if secret in found else {}
            if not values.get(tls.AUTHORITIES):
                message = f"spec.tls: there is no Secret {secret} with {tls.AUTHORITIES}"
                raise Blocked(Stalled(CERTIFICATE_UNUSABLE, message), RETRY_S)
            self._authorities[uid] = values[tls.AUTHORITIES]
        return self._authorities[uid]


def check_secret_in_use(cluster: Cluster, pods: Iterable[BrokerPod]) -> None:
    """Raises Blocked if brokers that use TLS among themselves would have to be restarted with
    another Secret, whose authority the rest would not trust.
    """
    secret = tls.secret_name(cluster)
    if using := [it for it in pods if it.tls and it.certificates != secret]:
        message = (
            f"spec.tls: {', '.join(it.name for it in using)} use Secret {using[0].certificates} for TLS with other "
            "brokers: restore it in spec.tls; to use another one, set interBroker: false first and wait until Ready"
        )
        raise Blocked(Stalled(CERTIFICATE_UNUSABLE, message), RETRY_S)
