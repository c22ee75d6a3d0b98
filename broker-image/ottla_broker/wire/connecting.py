"""Opens a client's connection, with TLS if it is secured so.

While the brokers of a cluster get TLS, some have it and some do not. A client whose TLS is optional
tries it first, and connects again without it if the handshake does not succeed. A certificate that
it does not trust is no such case: the broker has TLS then, and is perhaps a false one.
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
    """`handshake_timeout_s`: None for asyncio's. Raises OSError, of which ssl.SSLError is one."""
    loop, context = asyncio.get_running_loop(), security.ssl_context()
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
