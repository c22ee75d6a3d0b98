"""The login of one connection, in the way of its listener: by SASL, by the client's certificate, or
none.

A connection with SASL closes if its client has not logged in in time, if the login fails, and when
the session expires (KIP-368).
"""

import asyncio
from collections.abc import Callable, Mapping

from ottla_broker.config import SASL_SERVER_MAX_RECEIVE_SIZE, SOCKET_REQUEST_MAX_BYTES
from ottla_broker.requests.context import ConnectionState
from ottla_broker.security.principal import principal_from_certificate
from ottla_broker.security.principal_mapping import PrincipalMapper
from ottla_broker.security.sasl_session import SaslSession
from ottla_broker.wire.framing import FrameReader


class ConnectionLogin:
    """`close` closes the connection, with the reason."""

    __slots__ = ("_close", "_frames", "_max_request_bytes", "_timer")

    def __init__(self, frames: FrameReader, max_request_bytes: int, close: Callable[[str], None]) -> None:
        self._frames = frames
        self._max_request_bytes = max_request_bytes
        self._close = close
        self._timer: asyncio.TimerHandle | None = None

    def begin(
        self,
        state: ConnectionState,
        transport: asyncio.BaseTransport,
        sasl_sessions: Mapping[str, Callable[[], SaslSession]],
        principal_mappers: Mapping[str, PrincipalMapper],
    ) -> None:
        """Sets the SASL session of the state, or the principal of the client's certificate. Until
        the client has logged in with SASL, its requests must be small. Raises NoMatchingRule for a
        certificate without a principal.

        `sasl_sessions` and `principal_mappers`: those of `ConnectionServices`.
        """
        if (make_session := sasl_sessions.get(state.listener)) is not None:
            state.sasl = session = make_session()
            if not session.sasl.is_optional:
                self._frames.limit_frames(session.sasl.max_receive_bytes, SASL_SERVER_MAX_RECEIVE_SIZE.name)
            if (timeout_s := session.sasl.login_timeout_s) > 0:
                loop = asyncio.get_running_loop()
                why = f"the client has not logged in within {timeout_s:.0f} s"
                self._timer = loop.call_later(timeout_s, self._close, why)
        elif (mapper := principal_mappers.get(state.listener)) is not None:
            state.principal = principal_from_certificate(transport.get_extra_info("peercert"), mapper)

    def follow(self, session: SaslSession) -> bool:
        """Called after each response that may have changed the session. Returns False if the login
        has failed.
        """
        if session.has_failed:
            return False
        if session.principal is not None:
            self._frames.limit_frames(self._max_request_bytes, SOCKET_REQUEST_MAX_BYTES.name)
            if self._timer is not None and self._timer.when() != session.expires_s:
                self.cancel()
            if session.expires_s is not None and self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_at(session.expires_s, self._close, "its session has expired")
        return True

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
