"""Forwards requests to the broker that leads `_schemas`: writes, and reads whose result is not
found here.

A write is answered when this broker has applied it too, so that its client can read here what it
has written; after APPLY_TIMEOUT_S it is answered in any case.
"""

from typing import Final

import aiohttp
from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.registry import errors
from ottla_broker.registry.endpoint import ENDPOINT
from ottla_broker.registry.rest.requests import ACCEPTS_UNKNOWN
from ottla_broker.registry.schemas_topic import SchemasTopic
from ottla_broker.wire.client_security import TLS_PROTOCOLS

FORWARDED_MARK: Final = "X-Forward"
"""Header of a forwarded request, which its receiver does not forward again."""
APPLIED_OFFSET: Final = "X-Ottla-Schemas-Offset"
"""Header of a write's response: the offset up to which the leader has applied `_schemas`."""
FORWARDED_HEADERS: Final = ("Authorization", "Content-Type", "Accept", ACCEPTS_UNKNOWN)
TIMEOUT_S: Final = 25.0
APPLY_TIMEOUT_S: Final = 5.0


class LeaderForwarder:
    """Sends requests to the leader over HTTP, with the client's credentials."""

    def __init__(self, broker: Broker, topic: SchemasTopic) -> None:
        self._broker = broker
        self._topic = topic
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, request: web.Request, leader: int) -> web.Response:
        """The leader's response. Raises RegistryError."""
        url, uses_tls = self._url(leader)
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        headers = {name: request.headers[name] for name in FORWARDED_HEADERS if name in request.headers}
        headers[FORWARDED_MARK] = "true"
        tls = self._broker.channels.security.ssl_context() if uses_tls else None
        try:
            async with self._session.request(
                request.method,
                f"{url}{request.path_qs}",
                data=await request.read(),
                headers=headers,
                ssl=tls if tls is not None else True,
            ) as response:
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as reason:
            raise errors.forwarding_failed(f"cannot forward the request to broker {leader}: {reason}") from None
        if (offset := response.headers.get(APPLIED_OFFSET)) is not None:
            await self._topic.wait_until_applied(int(offset), APPLY_TIMEOUT_S)
        return web.Response(body=body, status=response.status, content_type=response.content_type)

    def _url(self, leader: int) -> tuple[str, bool]:
        """The URL of the leader's registry, and True if it has TLS. Raises RegistryError."""
        broker = self._broker.image.brokers.get(leader)
        endpoint = None if broker is None else broker.endpoints.get(ENDPOINT)
        if endpoint is None:
            raise errors.unknown_leader(
                f"broker {leader} leads the topic of schemas and serves no registry: set schema.registry.listener on "
                "every broker"
            )
        uses_tls = endpoint.protocol in TLS_PROTOCOLS
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"{'https' if uses_tls else 'http'}://{host}:{endpoint.port}", uses_tls

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
