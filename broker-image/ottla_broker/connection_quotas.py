"""Limits on the number of open connections, and on new connections per second (Kafka's
ConnectionQuotas).

- `max.connections` and `max.connections.per.ip` limit the connections of all listeners together,
  `listener.name.NAME.max.…` those of one listener.
- Connections above `max.connection.creation.rate` wait, as in the accept queue of a broker that
  accepts no faster. Above the rate of an address (the quota `connection_creation_rate`) they are
  refused.
- If there are other listeners, `max.connections` and `max.connection.creation.rate` do not limit
  the inter-broker listener, so that clients cannot keep a broker from connecting. The limits of one
  address do.

A change of a limit applies to the next connection.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final

from ottla_broker.config import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    Config,
)
from ottla_broker.security.client_quota_manager import ClientQuotaManager
from ottla_broker.security.client_quotas import CONNECTION_CREATION_RATE
from ottla_broker.security.token_bucket import TokenBucket

logger = logging.getLogger(__name__)

ALL_LISTENERS: Final = ""
MAX_WAIT_S: Final = 10.0
"""Longest wait of a connection above the rate. A connection that would wait longer is refused:
its client gives up by then (`socket.connection.setup.timeout.ms`).
"""


class Room(Enum):
    """Whether one more connection is allowed."""

    AVAILABLE = "available"
    EXHAUSTED = "exhausted"
    FOR_BROKERS = "for brokers, if a client makes room"


class ConnectionQuotas:
    """Counts open connections, those with TLS from the beginning of their handshakes. `refused`:
    number of connections that were not accepted.
    """

    def __init__(self, config: Config, client_quotas: ClientQuotaManager, now_s: Callable[[], float]) -> None:
        self._config = config
        self._client_quotas = client_quotas
        self._now_s = now_s
        self.refused = 0
        self._of_listener: Counter[str] = Counter()
        self._of_host: Counter[str] = Counter()
        self._buckets: dict[str, TokenBucket] = {}  # by listener

    def add(self, listener: str, host: str) -> None:
        self._of_listener[listener] += 1
        self._of_host[host] += 1

    def remove(self, listener: str, host: str) -> None:
        self._of_listener[listener] -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

    def check_room(self, listener: str, host: str) -> Room:
        """Checks that one more connection is allowed. A connection that is not allowed is counted
        as refused.
        """
        config = self._config
        max_of_host = config(MAX_CONNECTIONS_PER_IP_OVERRIDES).get(host, config(MAX_CONNECTIONS_PER_IP))
        max_of_listener = config.listener_override(listener, MAX_CONNECTIONS)
        if self._of_host[host] >= max_of_host:
            return self._refuse(host, MAX_CONNECTIONS_PER_IP.name, max_of_host)
        if max_of_listener is not None and self._of_listener[listener] >= max_of_listener:
            return self._refuse(host, f"listener.name.{listener.lower()}.{MAX_CONNECTIONS.name}", max_of_listener)
        if self._of_listener.total() < (limit := config(MAX_CONNECTIONS)):
            return Room.AVAILABLE
        if self._is_protected(listener):
            return Room.FOR_BROKERS
        return self._refuse(host, MAX_CONNECTIONS.name, limit)

    def count_connection_of_host(self, host: str) -> float:
        """Counts a new connection from an address. Returns 0 if the quota of the address allows it.
        Otherwise it must be refused: returns the seconds until the next is allowed.
        """
        if not self._client_quotas.is_active or not (wait_s := self._client_quotas.count_connection(host)):
            return 0.0
        self.refused += 1
        return wait_s

    def count_connection(self, listener: str, host: str) -> float | None:
        """Counts a new connection against the creation rates of its listener and of all listeners.
        Returns the seconds that it has to wait; None: it must be refused.
        """
        name, limit = MAX_CONNECTION_CREATION_RATE.name, self._config(MAX_CONNECTION_CREATION_RATE)
        limit_of_listener = self._config.listener_override(listener, MAX_CONNECTION_CREATION_RATE)
        wait_of_listener_s = self._wait_s(listener, limit_of_listener)
        wait_of_all_s = self._wait_s(ALL_LISTENERS, limit)
        wait_s = wait_of_listener_s if self._is_protected(listener) else max(wait_of_listener_s, wait_of_all_s)
        if wait_s <= MAX_WAIT_S:
            return wait_s
        if limit_of_listener is not None and wait_of_listener_s > MAX_WAIT_S:
            name, limit = f"listener.name.{listener.lower()}.{name}", limit_of_listener
        self._refuse(host, name, limit)
        return None

    def _wait_s(self, listener: str, limit: int | None) -> float:
        """The seconds that one more connection has to wait for a rate of `limit` per second. It is
        counted, unless they exceed MAX_WAIT_S.
        """
        if limit is None or limit >= MAX_CONNECTION_CREATION_RATE.default:
            return 0.0
        if limit == 0:
            return math.inf
        bucket = self._buckets.setdefault(
            listener, TokenBucket(self._client_quotas.windows.burst_s(CONNECTION_CREATION_RATE))
        )
        wait_s = (1 - bucket.tokens(limit, self._now_s())) / limit
        if wait_s <= MAX_WAIT_S:
            bucket.take(1, limit, self._now_s())
        return max(wait_s, 0.0)

    def _is_protected(self, listener: str) -> bool:
        return listener == self._config.inter_broker_listener and len(self._config.listeners) > 1

    def _refuse(self, host: str, name: str, limit: int) -> Room:
        self.refused += 1
        logger.warning("refused connection from %s: %s=%d reached", host, name, limit)
        return Room.EXHAUSTED
