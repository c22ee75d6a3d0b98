"""What the connections of a broker share: services, memory, and the callbacks of the server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ottla_broker.busy_poll import BusyPoll
from ottla_broker.connection_limits import ConnectionLimits
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.group_turn import GroupTurn
from ottla_broker.memory_pool import MemoryPool
from ottla_broker.produce_turn import ProduceTurn
from ottla_broker.requests.context import ConnectionState
from ottla_broker.requests.request_trace import RequestTrace
from ottla_broker.security.principal_mapping import PrincipalMapper
from ottla_broker.security.sasl_session import SaslSession
from ottla_broker.wire.framing import FrameReader
from ottla_broker.wire.produce_template import SharedTemplates

MIN_RESPONSE_BYTES: Final = 64 * 1024
"""Bytes that a fetch may always return, however little memory is left."""

C = TypeVar("C")
"""The class of connections, whose module imports this one."""


@dataclass(slots=True)
class ConnectionServices(Generic[C]):
    """Services and memory limits that all connections of a broker share. `request_memory`: of large
    requests that are received or queued. `response_memory`: what transports hold because their
    clients do not read. `new_frames`: creates the reader of a new connection. `sasl_sessions`:
    functions that create the session of a new connection, by the names of the listeners with SASL.
    `principal_mappers`: by the names of the listeners where certificates of clients are their
    logins. `sample_trace`: the trace of a request that is chosen to have one; None unless tracing
    is on. `on_open`: returns None, or the seconds after which to close a connection that it
    refuses.
    """

    dispatcher: RequestDispatcher
    produce_turn: ProduceTurn
    group_turn: GroupTurn
    limits: ConnectionLimits
    request_memory: MemoryPool
    response_memory: MemoryPool
    new_frames: Callable[[], FrameReader]
    clock: Callable[[], float]
    sasl_sessions: Mapping[str, Callable[[], SaslSession]]
    principal_mappers: Mapping[str, PrincipalMapper]
    busy_poll: BusyPoll | None
    sample_trace: Callable[[bytearray, ConnectionState], RequestTrace | None] | None
    on_open: Callable[[C], float | None]
    on_close: Callable[[C], None]
    on_response_memory_exhausted: Callable[[], None]
    templates: SharedTemplates = field(default_factory=SharedTemplates)

    def max_response_bytes(self) -> int:
        """A share of the response memory that is left, so that no single reader takes all of it."""
        pool = self.response_memory
        return max(MIN_RESPONSE_BYTES, (pool.limit_bytes - pool.allocated_bytes) // 2)
