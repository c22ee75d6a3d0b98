"""A broker with a TLS listener, and its certificates."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import uvloop

from ottla_broker.server import Server
from tests.kube.certificates import CertificateAuthority
from tests.unit.api.brokers import RawConnection, SmallBroker


def tls_broker(folder: Path, keystore: Path, **settings: str) -> SmallBroker:
    """A broker with a PLAINTEXT and an SSL listener. `settings`: with underscores for dots, and
    THE_AUTHORITY for the path of the authority's certificate.
    """
    defaults = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}
    authority_file = str(keystore.parent / "ca.crt")
    given = {name.replace("_", "."): value.replace("THE_AUTHORITY", authority_file) for name, value in settings.items()}
    return SmallBroker(folder, **(defaults | given))


def tls_test(**settings: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Runs a test with a broker that has a PLAINTEXT and an SSL listener on uvloop, for at most 30
    s.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @wraps(test)
        def run(tmp_path: Path, authority: CertificateAuthority, keystore: Path) -> None:
            async def with_broker() -> None:
                broker = tls_broker(tmp_path, keystore, **settings)
                try:
                    await asyncio.wait_for(test(broker, authority), 30)
                finally:
                    broker.close()

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(with_broker())

        del run.__wrapped__  # so that pytest passes the fixtures
        return run

    return decorate


async def start_both_listeners(server: Server) -> tuple[int, int]:
    """Starts to serve. Returns the PLAINTEXT and the SSL port."""
    addresses = server.bind()
    await server.serve()
    return addresses["PLAINTEXT"].port, addresses["SSL"].port


def client_context(authority: CertificateAuthority, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if certificate:
        context.load_cert_chain(*certificate)
    return context


async def connect_with_tls(port: int, context: ssl.SSLContext) -> RawConnection:
    return RawConnection(
        *await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost", limit=1 << 26)
    )
