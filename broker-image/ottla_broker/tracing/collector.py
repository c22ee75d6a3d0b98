"""POST to an OpenTelemetry collector, with aiohttp."""

from typing import Final

import aiohttp

from ottla_broker.tracing.span_exporter import RETRYABLE, CollectorUnavailable, SpansRefused

TIMEOUT_S: Final = 10.0
"""OpenTelemetry's default timeout of an export."""
PATH: Final = "/v1/traces"


class Collector:
    """`endpoint`: the URL without PATH."""

    def __init__(self, endpoint: str) -> None:
        self._url = endpoint + PATH
        self._session: aiohttp.ClientSession | None = None

    async def post(self, body: bytes) -> None:
        """Sends the body of an export. Raises CollectorUnavailable, SpansRefused."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        headers = {"Content-Type": "application/x-protobuf"}
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
                if response.status in RETRYABLE:
                    raise CollectorUnavailable(f"HTTP status {response.status}")
                if response.status != 200:
                    raise SpansRefused(f"HTTP status {response.status}")
                await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as reason:
            raise CollectorUnavailable(str(reason) or type(reason).__name__) from reason

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
