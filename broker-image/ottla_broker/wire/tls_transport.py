"""TLS of one server connection: a protocol to the socket's transport below, and a transport to the
protocol above.

asyncio has such a layer, but with it a broker cannot bound its memory and its handshakes: no caller
learns of a handshake that fails or never ends, and bytes that wait for a slow reader in the TLS
layer count as sent. Here

- the protocol above is created after the handshake, which a `HandshakeTracker` bounds in number and
  time;
- written bytes are encrypted piece by piece, only while the socket accepts them, and
  `get_write_buffer_size` counts all that are not sent;
- nothing is decrypted while reading is paused.

The ssl module does the cryptography.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from ottla_broker.wire.batch import Buffer

PIECE_BYTES: Final = 128 * 1024  # encrypted at a time
HANDSHAKE_RECORD: Final = 22  # type of the first record of every TLS client (RFC 8446, 5.1)
# Shared by all connections: received bytes are taken out before another connection receives.
_scratch = memoryview(bytearray(PIECE_BYTES))


class HandshakeTracker(Protocol):
    """Gets calls for every connection: `begin`, which may refuse it, and then `complete` or `fail`.

    The reason of `fail` is empty if the client sent nothing. `log_failure` is called when TLS fails
    after the handshake.
    """

    def begin(self, connection: "TlsTransport") -> bool: ...

    def complete(self, connection: "TlsTransport") -> None: ...

    def fail(self, connection: "TlsTransport", why: str) -> None: ...

    def log_failure(self, connection: "TlsTransport", why: str) -> None: ...


class TlsTransport(asyncio.BufferedProtocol):
    """A TLS transport with the methods of asyncio.Transport that a server's connections use.

    `create_protocol` creates the protocol above. `accepts_plaintext`: a client that does not begin
    with TLS is served without it; the socket's transport then belongs to the protocol above.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        handshakes: HandshakeTracker,
        create_protocol: Callable[[], asyncio.BufferedProtocol],
        *,
        accepts_plaintext: bool = False,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshakes = handshakes
        self._create_protocol = create_protocol
        self._accepts_plaintext = accepts_plaintext
        self._above: asyncio.BufferedProtocol | None = None
        self._has_received = False
        self._unsent: deque[memoryview] = deque()  # not encrypted yet
        self._unsent_bytes = 0
        self._is_writing_paused = False  # by the transport below
        self._is_reading_paused = False  # by the protocol above
        self._is_closing = False  # nothing more is read or written, but written bytes are still sent

    # --- called by the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        if not self._handshakes.begin(self):
            self.abort()

    def delay_handshake(self, delay_s: float) -> None:
        """Reads nothing from the socket for `delay_s`."""
        self._below.pause_reading()
        asyncio.get_running_loop().call_later(delay_s, self._end_delay)

    def _end_delay(self) -> None:
        if not self._is_closing:
            self._below.resume_reading()

    def connection_lost(self, reason: Exception | None) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._above is not None:
            self._above.connection_lost(reason)
        else:
            why = "the client closed the connection during the handshake" if self._has_received else ""
            self._handshakes.fail(self, why)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _scratch

    def buffer_updated(self, count: int) -> None:
        if self._is_closing:
            return
        if not self._has_received:
            self._has_received = True
            if _scratch[0] != HANDSHAKE_RECORD:
                if self._accepts_plaintext:
                    self._continue_without_tls(bytes(_scratch[:count]))
                    return
                self._refuse("the client does not use TLS, and this listener requires it")
                return
        self._incoming.write(_scratch[:count])
        if self._above is None:
            self._continue_handshake()
        else:
            self._decrypt()

    def eof_received(self) -> bool:
        self.close()
        return bool(self._unsent)  # true keeps the socket open until these bytes are sent

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._encrypt()
        if self._is_writing_paused or self._above is None:
            return
        self._above.resume_writing()
        if self._is_closing:
            self._close_below()

    # --- the handshake

    def _continue_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return
        except (ssl.SSLError, ssl.CertificateError) as reason:
            self._send_encrypted()  # the alert that tells the client why
            self._refuse(describe_tls_error(reason))
            return
        self._send_encrypted()
        self._handshakes.complete(self)
        self._above = self._create_protocol()
        self._above.connection_made(self)  # type: ignore[arg-type]  # it has all transport methods that are used
        if self._is_writing_paused:
            self._above.pause_writing()
        self._decrypt()

    def _continue_without_tls(self, received: bytes) -> None:
        """Passes the connection and received bytes to the protocol above."""
        self._handshakes.complete(self)
        above = self._create_protocol()
        self._below.set_protocol(above)
        above.connection_made(self._below)
        while received and not self._below.is_closing():
            buffer = cast(memoryview, above.get_buffer(-1))
            count = min(len(buffer), len(received))
            buffer[:count] = received[:count]
            received = received[count:]
            above.buffer_updated(count)

    def _refuse(self, why: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._handshakes.fail(self, why)
            self._below.close()

    # --- receiving

    def _decrypt(self) -> None:
        """Passes decrypted bytes to the protocol above, while it reads."""
        above = self._above
        assert above is not None
        is_ended = False
        try:
            while not (self._is_reading_paused or self._is_closing or is_ended):
                buffer = cast(memoryview, above.get_buffer(-1))
                filled = 0
                try:
                    while filled < len(buffer):
                        if not (count := self._tls.read(len(buffer) - filled, buffer[filled:])):
                            is_ended = True  # the client has sent close_notify
                            break
                        filled += cast(int, count)
                except ssl.SSLWantReadError:
                    pass
                if filled:
                    above.buffer_updated(filled)
                if filled < len(buffer):
                    break
        except ssl.SSLError as reason:
            self._break(reason)
            return
        self._send_encrypted()
        if is_ended:
            self.close()

    # --- called by the protocol above

    def write(self, data: Buffer) -> None:
        if data and not self._is_closing:
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)
            self._encrypt()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        for data in buffers:
            if data:
                self._unsent.append(memoryview(data))
                self._unsent_bytes += len(data)
        self._encrypt()

    def get_write_buffer_size(self) -> int:
        """Bytes that are not sent, encrypted or not."""
        return self._unsent_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._below.resume_reading()
        asyncio.get_running_loop().call_soon(self._decrypt_received)

    def is_closing(self) -> bool:
        return self._is_closing or self._below.is_closing()

    def close(self) -> None:
        """Closes the connection when all written bytes are sent."""
        if not self._is_closing:
            self._is_closing = True
            self._close_below()

    def abort(self) -> None:
        self._is_closing = True
        self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`peercert`: the client's certificate as SSLSocket.getpeercert returns it, or None."""
        if name == "peercert":
            return self._tls.getpeercert() or default
        return self._below.get_extra_info(name, default)

    def _break(self, reason: ssl.SSLError) -> None:
        self._handshakes.log_failure(self, describe_tls_error(reason))
        self.abort()

    def _decrypt_received(self) -> None:
        if not self._is_closing:
            self._decrypt()

    def _encrypt(self) -> None:
        """Encrypts as many bytes as the socket accepts now."""
        while self._unsent and not self._is_writing_paused:
            first = self._unsent[0]
            try:
                count = self._tls.write(first[:PIECE_BYTES])
            except ssl.SSLError as reason:
                self._break(reason)
                return
            self._unsent_bytes -= count
            if count < len(first):
                self._unsent[0] = first[count:]
            else:
                self._unsent.popleft()
            if self._outgoing.pending >= PIECE_BYTES or not self._unsent:
                self._send_encrypted()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())

    def _close_below(self) -> None:
        if self._unsent:
            return  # `resume_writing` closes it when they are sent
        with suppress(ssl.SSLError):
            self._tls.unwrap()  # sends close_notify; the client's is not awaited
        self._send_encrypted()
        self._below.close()


_UNTRUSTED: Final = "the client does not trust this broker's certificate"
_OPENSSL_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth=required",
    "UNSUPPORTED_PROTOCOL": "the client supports no TLS version that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "the client supports no cipher of this broker",
    "TLSV1_ALERT_UNKNOWN_CA": f"{_UNTRUSTED} (unknown authority)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_UNTRUSTED} (bad certificate)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_UNTRUSTED} (expired)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client supports no TLS version that ssl.enabled.protocols allows",
    "WRONG_VERSION_NUMBER": "the received bytes are not TLS",
}


def describe_tls_error(reason: Exception) -> str:
    """The reason why TLS failed, as far as OpenSSL reports it."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the client's certificate is rejected: {reason.verify_message}"
    name = (getattr(reason, "reason", None) or str(reason)).replace(" ", "_").upper()
    if name in _OPENSSL_REASONS:
        return _OPENSSL_REASONS[name]
    if "_ALERT_" in name:
        return f"the client aborted: {name.partition('_ALERT_')[2].lower().replace('_', ' ')}"
    return name.lower().replace("_", " ")
