"""The operator's connection to the schema registry of a Cluster, with the login of its Kafka
connection. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla_broker.wire.client_security import PLAINTEXT, ClientSecurity
from ottla_operator.resources.cluster import Cluster


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """`addresses`: host:port of registries of ready brokers."""

    addresses: Sequence[str]
    security: ClientSecurity

    @property
    def urls(self) -> list[str]:
        scheme = "https" if self.security.uses_tls else "http"
        return [f"{scheme}://{it}" for it in self.addresses]

    @property
    def login(self) -> str:
        """name:password; empty without a login."""
        return f"{self.security.username}:{self.security.password}" if self.security.uses_sasl else ""


def registry_security(
    cluster: Cluster, operator: ClientSecurity, authorities: str, server_name: str, *, is_loopback: bool = False
) -> ClientSecurity | str:
    """TLS and login of the connection, or the reason why the operator cannot connect. `operator`:
    security of its Kafka connection. `authorities`: those that have signed the listeners'
    certificates; empty for the system's. `server_name`: the name that the certificate must have;
    empty for the host of the URL. `is_loopback`: the registry is on this machine, so a password may
    be sent without TLS.
    """
    name = cluster.schema_registry_listener
    listener = next((it for it in cluster.listeners if it.name.upper() == name), None)
    if listener is None:
        return f"spec.schemaRegistry.listener of Cluster {cluster.name}: there is no listener {name.lower()}"
    needs_login = listener.authentication == "SCRAM"
    if listener.authentication == "TLS" or (needs_login and not operator.uses_sasl):
        return (
            f"the operator has no login for listener {listener.name} of Cluster {cluster.name}, whose authentication "
            "holds for the schema registry: set spec.schemaRegistry.listener to one with authentication None, or to "
            "one with SCRAM where every listener authenticates its clients"
        )
    if needs_login and not listener.tls and not is_loopback:
        return (
            f"the operator does not send its password over HTTP: set tls: true of listener {listener.name} of Cluster "
            f"{cluster.name}, or another spec.schemaRegistry.listener"
        )
    protocol = ("SASL_" if needs_login else "") + ("SSL" if listener.tls else PLAINTEXT)
    return replace(operator, protocol=protocol, trusted_certificates=authorities, server_name=server_name)
