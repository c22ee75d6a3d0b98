"""Logins with the certificates that browsers present, as clients of the listener that
`http.security.listener` names.

The TLS handshake has verified a certificate by the listener's truststore. A session is
valid on connections that present a certificate of the same principal: its cookie alone is not
enough.
"""

import ssl
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.config import SSL_PRINCIPAL_MAPPING_RULES
from ottla_broker.console.login import SessionAccess, read_form, redirect
from ottla_broker.console.requests import PageError
from ottla_broker.console.sessions import Login
from ottla_broker.security.principal import ANONYMOUS, Principal, principal_from_certificate
from ottla_broker.security.principal_mapping import NoMatchingRule


class CertificateLogin:
    """`listener`: its `ssl.principal.mapping.rules` map subjects of certificates to principals."""

    def __init__(self, broker: Broker, listener: str, access: SessionAccess) -> None:
        self._broker = broker
        self._access = access
        self._mapper = broker.config.listener_value(listener, SSL_PRINCIPAL_MAPPING_RULES)

    def find_principal(self, http: web.Request) -> Principal | None:
        """The principal of the certificate that the browser presents. None without a certificate,
        and for a subject that no rule maps.
        """
        try:
            found = principal_from_certificate(find_certificate(http), self._mapper)
        except NoMatchingRule:
            return None
        return None if found == ANONYMOUS else found

    async def log_in(self, http: web.Request) -> web.Response:
        """Redirects to the overview, with the cookie of a new session. Raises PageError."""
        await read_form(http)
        certificate = find_certificate(http)
        if not certificate:
            raise PageError(401, "The browser presents no certificate that this broker accepts.")
        try:
            principal = principal_from_certificate(certificate, self._mapper)
        except NoMatchingRule as reason:
            await self._access.refuse_login(http, str(certificate.get("subject")), f"The login failed: {reason}.")
        left_s = ssl.cert_time_to_seconds(certificate["notAfter"]) - self._broker.runtime.now_ms() / 1000
        login = Login(principal, left_s, is_presented=lambda other: self.find_principal(other) == principal)
        return self._access.open_session(http, login, redirect("/"))


def find_certificate(http: web.Request) -> Mapping[str, Any]:
    """The browser's certificate, as `SSLSocket.getpeercert` returns it; empty without one."""
    tls = None if http.transport is None else http.transport.get_extra_info("ssl_object")
    return {} if tls is None else tls.getpeercert() or {}
