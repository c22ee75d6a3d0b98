"""Authentication and authorization of the console's users.

- A cluster without authentication is shown to everyone who reaches `http.listener`, as
  User:ANONYMOUS. Web pages of others must not read it through a name that they point at this
  address (DNS rebinding): a request has to name an IP address, this machine or a listener's
  advertised host.
- Where clients log in with PLAIN or SCRAM, so do users of the console, with the same names and
  passwords, and the cluster's access rules hold for them. Without TLS (`http.security.listener`),
  passwords are taken from this machine only: from a browser on it, `kubectl port-forward`, or a
  proxy that ends TLS.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import (
    AUTHORIZER_CLASS_NAME,
    CONSOLE_ENABLE,
    HTTP_LISTENER,
    SSL_CLIENT_AUTH,
    Config,
    SettingError,
)
from ottla_broker.config.listener_security import listener_sasl
from ottla_broker.requests.context import AUTHORIZATION_ERRORS, ConnectionState, RequestContext
from ottla_broker.security.audit import AuditedResource
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.security.principal import Principal
from ottla_broker.security.scram import MECHANISMS
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.client_security import PLAIN, SASL_PROTOCOLS, TLS_PROTOCOLS
from ottla_broker.wire.errors import KafkaError

LOCAL_NAME: Final = "localhost"
CLIENT_ID: Final = "console"
PASSWORD_MECHANISMS: Final = frozenset({PLAIN, *MECHANISMS})


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """Somebody at a browser. `host`: the address that they connect from. `form_token`: of their
    session, or of the whole of an open console. `may_write`: `console.write` lets them use pages
    that write. `is_logged_in`: False once their session has ended.
    """

    broker: Broker
    principal: Principal
    host: str
    form_token: str = ""
    may_write: bool = False
    is_logged_in: Callable[[], bool] = lambda: True

    def may(self, operation: Operation, resource: Resource) -> bool:
        """By the same rules as for clients of Kafka's protocol."""
        return self.broker.authorizer.allows(self.principal, self.host, operation, resource)

    def record_change(self, operation: str, resource: AuditedResource, result: str, api: ApiKey) -> None:
        """Writes a change to the audit log that the console made for the user by the request
        `api`."""
        make_context(self.broker, self.principal, self.host, api).record_audit(operation, resource, result)

    def check(self, operation: Operation, resource: Resource, api: ApiKey) -> None:
        """Raises TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED, which is in the audit log as that
        of the request that shows the same to clients.
        """
        if not make_context(self.broker, self.principal, self.host, api).is_authorized(operation, resource):
            what = f"{resource.kind.name} {resource.name!r}"
            message = f"{self.principal} is not allowed {operation.name.upper()} on {what}"
            raise KafkaError(AUTHORIZATION_ERRORS[resource.kind], message)


def make_context(broker: Broker, principal: Principal, host: str, api: ApiKey) -> RequestContext:
    """The context of a console request, from which authorization and the audit log take the user
    and the address."""
    connection = ConnectionState(host, 0, HTTP_LISTENER.name, principal)
    return RequestContext(broker, connection, 0, CLIENT_ID, broker.authorizer, api_key=int(api))


def find_authentication(config: Config) -> Iterator[str]:
    """The settings by which clients of this broker authenticate or are authorized; none on an open
    cluster.
    """
    if name := config(AUTHORIZER_CLASS_NAME):
        yield f"{AUTHORIZER_CLASS_NAME.name}={name}"
    for listener in config.listeners:
        protocol = config.security_protocol(listener.name)
        if protocol in SASL_PROTOCOLS:
            yield f"listener {listener.name} has {protocol}"
        elif protocol in TLS_PROTOCOLS and config.of_listener(listener.name, SSL_CLIENT_AUTH) == "required":
            yield f"listener {listener.name} requires certificates of clients"


def find_login_listener(config: Config) -> str | None:
    """The listener whose users log in: the first with PLAIN or SCRAM, one for clients before that
    between brokers. None on an open cluster. Raises SettingError where clients log in by other
    means only.
    """
    if not (reasons := list(find_authentication(config))):
        return None
    names = [one.name for one in config.listeners if config.security_protocol(one.name) in SASL_PROTOCOLS]
    usable = [one for one in names if PASSWORD_MECHANISMS & set(listener_sasl(config, one).mechanisms)]
    if usable:
        return min(usable, key=lambda it: it == config.inter_broker_listener)
    problem = (
        f"{CONSOLE_ENABLE.name}=true: users of the console log in with PLAIN or SCRAM, and no listener has them, while "
        f"clients of this broker are authenticated or authorized ({'; '.join(reasons)}); set it to false"
    )
    raise SettingError([problem])


class AllowedHosts:
    """The names in a request's `Host` under which an open console answers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        listener = broker.config(HTTP_LISTENER)
        self._own = {LOCAL_NAME, socket.gethostname().lower(), "" if listener is None else listener.host.lower()} - {""}

    def __contains__(self, host: str) -> bool:
        """`host`: without a port, IPv6 addresses without brackets."""
        name = host.lower()
        return parse_address(name) is not None or name in self._own or name in self._advertised()

    def _advertised(self) -> set[str]:
        brokers = self._broker.image.brokers.values()
        return {endpoint.host.lower() for broker in brokers for endpoint in broker.endpoints.values()}


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def keeps_passwords_secret(http: web.Request) -> bool:
    """True if the connection has TLS or does not leave this machine."""
    address = parse_address(http.remote or "")
    mapped = getattr(address, "ipv4_mapped", None) or address
    return http.secure or (mapped is not None and mapped.is_loopback)
