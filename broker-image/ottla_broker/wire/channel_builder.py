"""Opens the connections of a broker to other brokers, secured as their inter-broker listener is."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client_connection import open_connection
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import KafkaError, describe_os_error

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.BaseProtocol)

LOG_INTERVAL_S: Final = 10.0
"""Interval between two log lines about the same address."""
TLS_TIMEOUT_S: Final = 5.0
"""Timeout of the TLS handshake of a probe, which has no deadline of its own."""


class ChannelBuilder:
    """`security` is replaced when certificates or logins change; connections that are open stay."""

    def __init__(self, security: ClientSecurity = UNSECURED) -> None:
        self.security = security
        self._logged: dict[tuple[str, int], float] = {}

    async def open_channel(self, host: str, port: int, client_id: str, *, software: str = "ottla") -> Channel:
        """Connects and logs in. Raises OSError, also when the login fails: the other broker may
        accept it later.
        """
        try:
            return await open_channel(host, port, client_id, software=software, security=self.security)
        except KafkaError as reason:
            self._log_failure(host, port, str(reason))
            raise ConnectionError(str(reason)) from reason
        except ssl.SSLError as reason:
            self._log_failure(host, port, describe_os_error(reason))
            raise

    async def open_probe(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connects without a login, which ApiVersions requests do not need. Raises OSError."""
        return await open_connection(make_protocol, host, port, self.security, handshake_timeout_s=TLS_TIMEOUT_S)

    def _log_failure(self, host: str, port: int, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged.get((host, port), -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            self._logged[host, port] = now
            logger.warning("cannot connect to the broker at %s:%d by %s: %s", host, port, self.security.protocol, why)


UNSECURED_CHANNELS: Final = ChannelBuilder()
