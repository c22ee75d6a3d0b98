"""Authentication and authorization of requests to the registry.

The registry has the TLS and the logins of one of the broker's listeners
(`schema.registry.security.listener`, by default the first). Where that listener asks for SASL, HTTP
basic authentication is checked against the same users. A subject maps to the topic that it is named
after: reading it needs DESCRIBE on the topic, which READ and WRITE imply, registering WRITE, and
deleting DELETE. Reading its settings needs DESCRIBE_CONFIGS, changing them ALTER_CONFIGS. Settings
of the whole registry need these on the cluster.
"""

import asyncio
import base64
import binascii
import hmac
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import SCHEMA_REGISTRY_SECURITY_LISTENER, SSL_PRINCIPAL_MAPPING_RULES
from ottla_broker.config.listener_security import inter_broker_users, listener_sasl
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.subject_names import topic_of
from ottla_broker.requests.context import DENIED
from ottla_broker.requests.user_passwords import UserPasswords
from ottla_broker.security.audit import AuditedResource, AuditEvent
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.security.principal import ANONYMOUS, Principal, principal_from_certificate
from ottla_broker.security.principal_mapping import NoMatchingRule
from ottla_broker.security.sasl_session import ListenerSasl
from ottla_broker.wire.client_security import SASL_PROTOCOLS


class RegistryAccess:
    """`listener`: the broker's listener whose logins the registry has, with its `protocol`. In the
    methods, `api` is the operation's name in the audit log, and `subject` None is the cluster.
    """

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self.listener = config(SCHEMA_REGISTRY_SECURITY_LISTENER) or config.listeners[0].name
        self.protocol = config.security_protocol(self.listener)
        self._passwords = UserPasswords(broker)

    # -- authentication

    async def authenticate(self, request: web.Request) -> Principal:
        """The principal of a request. Raises RegistryError 401, for a wrong or missing password
        after the delay of failed logins.
        """
        if self.protocol not in SASL_PROTOCOLS:
            return self._certificate_principal(request)
        name, password = read_basic_credentials(request.headers.get("Authorization", ""))
        sasl = listener_sasl(self._broker.config, self.listener)
        if name and await self._is_password_valid(sasl, name, password):
            return Principal("User", name)
        await asyncio.sleep(sasl.failure_delay_s)
        raise RegistryError(401, "Unauthorized: a user's name and password are needed (HTTP basic authentication)")

    async def _is_password_valid(self, sasl: ListenerSasl, name: str, password: str) -> bool:
        """True if the password is the user's. The users with which brokers and the operator log in
        have the passwords of logins between brokers.
        """
        if (expected := inter_broker_users(self._broker.config).get(name)) is not None:
            return hmac.compare_digest(password.encode(), expected.encode())
        return await self._passwords.is_right(sasl, name, password)

    def _certificate_principal(self, request: web.Request) -> Principal:
        """The principal of the client's certificate; ANONYMOUS if it has none. Raises RegistryError
        401.
        """
        tls: Any = None if request.transport is None else request.transport.get_extra_info("ssl_object")
        if self.protocol != "SSL" or tls is None:
            return ANONYMOUS
        mapper = self._broker.config.listener_value(self.listener, SSL_PRINCIPAL_MAPPING_RULES)
        try:
            return principal_from_certificate(tls.getpeercert(), mapper)
        except NoMatchingRule as reason:
            raise RegistryError(401, f"Unauthorized: {reason}") from None

    # -- authorization

    def may(self, principal: Principal, host: str, operation: Operation, subject: str | None) -> bool:
        """True if the principal is allowed the operation on the subject. Writes no audit event."""
        return self._broker.authorizer.allows(principal, host, operation, resource_of(subject))

    def check(self, principal: Principal, host: str, operation: Operation, subject: str | None, api: str) -> None:
        """Raises RegistryError 403 and writes an audit event if the operation is not allowed."""
        if self.may(principal, host, operation, subject):
            return
        self.record(principal, host, operation, subject, api, DENIED)
        what = f"topic {resource_of(subject).name!r}" if subject is not None else "the cluster"
        raise RegistryError(40301, f"{principal} is denied operation {operation.name.upper()} on {what}")

    def record(
        self, principal: Principal, host: str, operation: Operation, subject: str | None, api: str, result: str
    ) -> None:
        """Writes an audit event. `result`: DENIED or DONE."""
        resource = resource_of(subject)
        at = datetime.fromtimestamp(self._broker.runtime.now_ms() / 1000, UTC)
        self._broker.audit_log.record(
            AuditEvent(
                at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                str(principal),
                host,
                "schema.registry.listener",
                None,
                api,
                0,
                operation.name.upper(),
                AuditedResource(resource.kind.name.upper(), resource.name),
                result,
            )
        )


def resource_of(subject: str | None) -> Resource:
    return CLUSTER if subject is None else Resource.topic(topic_of(subject))


def read_basic_credentials(header: str) -> tuple[str, str]:
    """The name and the password in an Authorization header; empty ones if it is not valid basic
    authentication.
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
