"""Authentication and authorization of the console's users.

- A cluster without authentication is shown to everyone who reaches `http.listener`, as
  User:ANONYMOUS. Web pages of others must not read it through a name that they point at this
  address (DNS rebinding): a request has to name an IP address, this machine or a listener's
  advertised host.
- Where clients log in, so do users of the console (`login_methods`), and the cluster's access rules
  hold for them. Without TLS (`http.security.listener`), logins are accepted from this machine only:
  from a browser on it, `kubectl port-forward`, or a proxy that terminates TLS.
- What a user may do: `ConsoleUser.may` and `check`. Whether a page may write (`console.write`):
  `user_requests`.
"""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import HTTP_LISTENER
from ottla_broker.requests.context import AUTHORIZATION_ERRORS, ConnectionState, RequestContext
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.security.principal import Principal
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError

LOCAL_NAME: Final = "localhost"
CLIENT_ID: Final = "console"


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """A user of the console. `host`: the address that they connect from. `form_token`: one for each
    session, or one for all users of an open cluster. `may_write`: `console.write` lets them use
    pages that write. `is_logged_in`: returns False once their session has ended.
    """

    broker: Broker
    principal: Principal
    host: str
    form_token: str = ""
    may_write: bool = False
    is_logged_in: Callable[[], bool] = lambda: True

    def may(self, operation: Operation, resource: Resource) -> bool:
        """True if the brokers allow it to clients of the same principal. Without an audit event."""
        return self.broker.authorizer.allows(self.principal, self.host, operation, resource)

    def record_change(self, operation: str, resource: AuditedResource, result: str, api: ApiKey) -> None:
        """Records in the audit log what the console did for the user with the request `api`."""
        make_context(self.broker, self.principal, self.host, api).record_audit(operation, resource, result)

    def check(self, operation: Operation, resource: Resource, api: ApiKey) -> None:
        """Raises TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED if the user may not do it. `api`:
        the request with which clients do the same; the audit log assigns the denial to it.
        """
        if not make_context(self.broker, self.principal, self.host, api).is_authorized(operation, resource):
            what = f"{resource.kind.name} {resource.name!r}"
            message = f"{self.principal} is not allowed {operation.name.upper()} on {what}"
            raise KafkaError(AUTHORIZATION_ERRORS[resource.kind], message)


def make_context(broker: Broker, principal: Principal, host: str, api: ApiKey) -> RequestContext:
    """A request context with the principal and the address that authorization and the audit log
    need."""
    connection = ConnectionState(host, 0, HTTP_LISTENER.name, principal)
    return RequestContext(broker, connection, 0, CLIENT_ID, broker.authorizer, api_key=int(api))


class AllowedHosts:
    """The names in a request's `Host` under which the console of an open cluster answers, and all
    IP addresses."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        listener = broker.config(HTTP_LISTENER)
        self._own = {LOCAL_NAME, socket.gethostname().lower(), "" if listener is None else listener.host.lower()} - {""}

    def __contains__(self, host: str) -> bool:
        """`host`: without a port, IPv6 addresses without brackets."""
        name = host.lower()
        return parse_address(name) is not None or name in self._own or name in self._advertised_hosts()

    def _advertised_hosts(self) -> set[str]:
        brokers = self._broker.image.brokers.values()
        return {endpoint.host.lower() for broker in brokers for endpoint in broker.endpoints.values()}


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_private_connection(http: web.Request) -> bool:
    """True if the connection has TLS or does not leave this machine."""
    address = parse_address(http.remote or "")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return http.secure or (mapped is not None and mapped.is_loopback)
