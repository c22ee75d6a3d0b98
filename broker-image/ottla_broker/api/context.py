"""What a handler knows besides its request."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla_broker.security.authorizer import OPERATIONS, Authorizer, Operation, Resource
from ottla_broker.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla_broker.broker import Broker


@dataclass(slots=True)
class Peer:
    """The other end of one connection. `software_*` is what ApiVersions told us of the client (KIP-511)."""

    host: str
    port: int
    listener: str
    principal: Principal = ANONYMOUS
    software_name: str = "unknown"
    software_version: str = "unknown"


@dataclass(slots=True)
class Context:
    """One request: `version` is the one it was sent in, whatever the handler's anchor is."""

    broker: "Broker"
    peer: Peer
    version: int
    client_id: str | None
    authorizer: Authorizer

    def may(self, operation: Operation, resource: Resource) -> bool:
        return self.authorizer.allows(self.peer.principal, self.peer.host, operation, resource)

    def authorized_operations(self, resource: Resource) -> int:
        """What the caller may do with a resource, as the bit field of Metadata and the Describe APIs (KIP-430)."""
        return sum(1 << operation for operation in OPERATIONS[resource.kind] if self.may(operation, resource))
