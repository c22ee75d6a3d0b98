"""Opens a client's connection, with TLS if `ClientSecurity` demands or allows it.

While TLS is being rolled out to the brokers of a cluster, only some of them have it. A client whose
TLS is optional tries TLS first, and connects again without it if the handshake fails. It does not
fall back when it distrusts the certificate, because an attacker may pose as the broker.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from ottla_broker.wire.client_security import ClientSecurity

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def open_connection(
    make_protocol: Callable[[], P],
    host: str,
    port: int,
    security: ClientSecurity,
    *,
    handshake_timeout_s: float | None = None,
) -> P:
    """Returns the connected protocol. `handshake_timeout_s`: None for asyncio's default. Raises
    OSError, of which ssl.SSLError is a subclass; ValueError if the PEM of `security` is invalid.
    """
    context = security.ssl_context()
    try:
        return await _connect(make_protocol, host, port, security, context, handshake_timeout_s)
    except OSError:  # first: a distrusted certificate is a ValueError too
        raise
    except ValueError as reason:  # also UnicodeError, of the encoding of names (IDNA)
        raise OSError(f"{host!r} is not a host name") from reason


async def _connect(
    make_protocol: Callable[[], P],
    host: str,
    port: int,
    security: ClientSecurity,
    context: ssl.SSLContext | None,
    handshake_timeout_s: float | None,
) -> P:
    loop = asyncio.get_running_loop()
    if context is not None:
        try:
            _, protocol = await loop.create_connection(
                make_protocol,
                host,
                port,
                ssl=context,
                server_hostname=security.server_name or host,
                ssl_handshake_timeout=handshake_timeout_s,
            )
            return protocol
        except (ConnectionResetError, ConnectionAbortedError, ssl.SSLError) as reason:
            if not security.is_tls_optional or isinstance(reason, ssl.SSLCertVerificationError):
                raise
    _, protocol = await loop.create_connection(make_protocol, host, port)
    return protocol
