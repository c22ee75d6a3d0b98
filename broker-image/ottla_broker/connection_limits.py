"""The bounds of a broker's connections on memory and time, from its settings. Their number is
limited in `connection_quotas`; `server` closes idle ones.
"""

import sys

import msgspec

from ottla_broker.config import (
    CONNECTION_QUEUED_MAX_BYTES,
    CONNECTIONS_MAX_IDLE_MS,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
    Config,
)
from ottla_broker.receive_buffer import adapts_receive_buffers


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Bounds on memory and time. Large requests, and responses that clients have not read, are
    bounded over all connections, each by half of `queued.max.request.bytes`; by nothing if that is
    −1.
    """

    request_bytes: int = 100 << 20  # socket.request.max.bytes
    all_requests_bytes: int = 128 << 20
    all_responses_bytes: int = 128 << 20
    queued_bytes: int = 1 << 20  # connection.queued.max.bytes
    idle_s: float = 600.0  # connections.max.idle.ms; 0: no limit
    adapts_receive_buffer: bool = False  # see `receive_buffer`
    slow_reader_timeout_s: float = 10.0  # without progress, while a fetch waits for the memory of unread responses

    @classmethod
    def from_config(cls, config: Config) -> "ConnectionLimits":
        both = config(QUEUED_MAX_REQUEST_BYTES)
        half = both // 2 if both > 0 else sys.maxsize
        return cls(
            request_bytes=config(SOCKET_REQUEST_MAX_BYTES),
            all_requests_bytes=half,
            all_responses_bytes=half,
            queued_bytes=config(CONNECTION_QUEUED_MAX_BYTES),
            adapts_receive_buffer=adapts_receive_buffers(config),
            idle_s=max(config(CONNECTIONS_MAX_IDLE_MS), 0) / 1000,
        )
