"""The Secrets of a Cluster's own certificate authority, and the ConfigMap with the certificates
that clients trust.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla_operator.certificates.internal_authority import (
    ClusterCertificates,
    authority_secret_name,
    maintain_certificates,
)
from ottla_operator.kube.api import ApiClient
from ottla_operator.kube.owned_objects import OwnedObjects, is_managed
from ottla_operator.kube.secrets import get_secret, secret_object
from ottla_operator.plan.listener_certificates import AUTHORITIES, secret_name
from ottla_operator.plan.objects import names
from ottla_operator.plan.source_credentials import SecretUnusable, secret_values
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.model import Json


@dataclass(slots=True)
class InternalCertificates:
    api: ApiClient
    objects: OwnedObjects

    async def maintain(self, cluster: Cluster, alternative_names: Collection[str]) -> ClusterCertificates:
        """Creates missing certificates, renews those that are due and stores them: the authority
        first, because nothing that it has signed may outlast it. Raises SecretUnusable; Blocked if
        the ConfigMap is not the operator's.
        """
        authority = await self._read(cluster, authority_secret_name(cluster))
        brokers = await self._read(cluster, secret_name(cluster))
        issued = maintain_certificates(cluster, _values(authority), _values(brokers), alternative_names, time.time())
        await self._write(cluster, authority_secret_name(cluster), "Opaque", authority, issued.authority)
        await self._publish(cluster, issued.brokers[AUTHORITIES])
        await self._write(cluster, secret_name(cluster), "kubernetes.io/tls", brokers, issued.brokers)
        return issued

    async def _read(self, cluster: Cluster, name: str) -> Json | None:
        """Raises SecretUnusable if the Secret is not the operator's."""
        found = await get_secret(self.api, cluster.metadata.namespace, name)
        if found is not None and not is_managed(found):
            raise SecretUnusable(
                f"spec.tls.issuer: Secret {name} exists and is not the operator's; rename or delete it"
            )
        return found

    async def _write(
        self, cluster: Cluster, name: str, type_: str, live: Json | None, values: Mapping[str, str]
    ) -> None:
        if _values(live) == values:
            return
        metadata = names.metadata(cluster, name)
        if live is not None:  # another operator may have written it since
            metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
        await self.api.apply(secret_object(metadata, values, type_))

    async def _publish(self, cluster: Cluster, authorities: str) -> None:
        """Publishes the certificates that clients trust, which are not confidential."""
        name = f"{cluster.name}-ca"
        desired = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": names.metadata(cluster, name),
            "data": {AUTHORITIES: authorities},
        }
        await self.objects.apply(desired, await self.objects.find(desired))


def _values(secret: Json | None) -> dict[str, str]:
    return {} if secret is None else secret_values(secret)
