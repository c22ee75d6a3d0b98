"""TLS of one connection that a server took: a protocol to the socket's transport below, a transport to the protocol above.

The event loop has such a layer of its own, which a broker cannot keep its promises with: nobody hears of a handshake that fails or never ends, and what waits
in the socket's buffer for a slow reader counts as sent, so that every reader may hold a whole answer more than is known of. Here

- the protocol above is made when the handshake is done; until then `Handshakes` bounds how many there are and for how long, and tells of those that fail;
- what was written is encrypted piece by piece, and only while the socket takes it: all that has not gone is in `get_write_buffer_size`;
- nothing is decrypted while reading is paused.

The cryptography is the ssl module's.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from ottla_broker.wire.batch import Buffer

PIECE: Final = 128 * 1024  # bytes that are encrypted at a time
HANDSHAKE: Final = 22  # type of the record that every TLS client sends first (RFC 8446, 5.1)
_scratch = memoryview(bytearray(PIECE))  # shared: what came is taken out before anybody else receives


class Handshakes(Protocol):
    """Told of each connection: `begin` says whether it may go on; then comes `succeeded`, or `failed` with why, empty where nothing is to be said. `broke`:
    what came later is no TLS."""

    def begin(self, one: "TlsTransport") -> bool: ...

    def succeeded(self, one: "TlsTransport") -> None: ...

    def failed(self, one: "TlsTransport", why: str) -> None: ...

    def broke(self, one: "TlsTransport", why: str) -> None: ...


class TlsTransport(asyncio.BufferedProtocol):
    """What asyncio.Transport has of methods, as far as a server's connections use it. `above`: makes the protocol of a connection."""

    def __init__(
        self, context: ssl.SSLContext, handshakes: Handshakes, above: Callable[[], asyncio.BufferedProtocol]
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshakes = handshakes
        self._make = above
        self._above: asyncio.BufferedProtocol | None = None
        self._began = False  # something has come
        self._unsent: deque[memoryview] = deque()  # not encrypted yet
        self._unsent_bytes = 0
        self._below_is_full = False
        self._reading_paused = False
        self._closing = False  # nothing more is read or written, but what was written goes

    # --- what the socket's transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        if not self._handshakes.begin(self):
            self.abort()

    def connection_lost(self, reason: Exception | None) -> None:
        self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        if self._above is not None:
            self._above.connection_lost(reason)
        else:
            self._handshakes.failed(self, "it hung up before the handshake was done" if self._began else "")

    def get_buffer(self, sizehint: int) -> memoryview:
        return _scratch

    def buffer_updated(self, count: int) -> None:
        if self._closing:
            return
        if not self._began:
            self._began = True
            if _scratch[0] != HANDSHAKE:
                self._refuse("it does not speak TLS, and this listener speaks nothing else")
                return
        self._incoming.write(_scratch[:count])
        if self._above is None:
            self._shake_hands()
        else:
            self._read()

    def eof_received(self) -> bool:
        self.close()
        return bool(self._unsent)  # it stays open until that has gone

    def pause_writing(self) -> None:
        self._below_is_full = True
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        self._below_is_full = False
        self._encrypt()
        if self._below_is_full or self._above is None:
            return
        self._above.resume_writing()
        if self._closing:
            self._close_below()

    # --- the handshake

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except (ssl.SSLError, ssl.CertificateError) as reason:
            self._send()  # the alert, which tells the client
            self._refuse(in_words(reason))
            return
        self._send()
        self._handshakes.succeeded(self)
        self._above = self._make()
        self._above.connection_made(self)  # type: ignore[arg-type]  # all of a transport's methods that it uses
        if self._below_is_full:
            self._above.pause_writing()
        self._read()

    def _refuse(self, why: str) -> None:
        if not self._closing:
            self._closing = True
            self._handshakes.failed(self, why)
            self._below.close()

    # --- what comes

    def _read(self) -> None:
        """Gives on what can be decrypted, while it is wanted."""
        above = self._above
        assert above is not None
        ended = False
        try:
            while not (self._reading_paused or self._closing or ended):
                buffer = cast(memoryview, above.get_buffer(-1))
                filled = 0
                try:
                    while filled < len(buffer):
                        if not (count := self._tls.read(len(buffer) - filled, buffer[filled:])):
                            ended = True  # the client said goodbye
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
        self._send()
        if ended:
            self.close()

    # --- what the protocol above calls

    def write(self, data: Buffer) -> None:
        if data and not self._closing:
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)
            self._encrypt()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._closing:
            return
        for data in buffers:
            if data:
                self._unsent.append(memoryview(data))
                self._unsent_bytes += len(data)
        self._encrypt()

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not been sent, encrypted or not."""
        return self._unsent_bytes + self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._below.resume_reading()
        asyncio.get_running_loop().call_soon(self._go_on_reading)  # what has come already

    def is_closing(self) -> bool:
        return self._closing or self._below.is_closing()

    def close(self) -> None:
        """When everything that was written has gone."""
        if not self._closing:
            self._closing = True
            self._close_below()

    def abort(self) -> None:
        self._closing = True
        self._below.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`peercert`: what the client's certificate says, as SSLSocket.getpeercert gives it; None where it has shown none."""
        if name == "peercert":
            return self._tls.getpeercert() or default
        return self._below.get_extra_info(name, default)

    def _break(self, reason: ssl.SSLError) -> None:
        self._handshakes.broke(self, in_words(reason))
        self.abort()

    def _go_on_reading(self) -> None:
        if not self._closing:
            self._read()

    def _encrypt(self) -> None:
        """As much as the socket takes now."""
        while self._unsent and not self._below_is_full:
            first = self._unsent[0]
            try:
                count = self._tls.write(first[:PIECE])
            except ssl.SSLError as reason:
                self._break(reason)
                return
            self._unsent_bytes -= count
            if count < len(first):
                self._unsent[0] = first[count:]
            else:
                self._unsent.popleft()
            if self._outgoing.pending >= PIECE or not self._unsent:
                self._send()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())

    def _close_below(self) -> None:
        if self._unsent:
            return  # when it has gone
        with suppress(ssl.SSLError):
            self._tls.unwrap()  # says goodbye; nobody waits for the answer
        self._send()
        self._below.close()


def in_words(reason: Exception) -> str:
    """Why TLS failed, as far as OpenSSL tells it."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {reason.verify_message}"
    name = (getattr(reason, "reason", None) or str(reason)).replace(" ", "_").upper()
    said = _SAID.get(name)
    if said is None and "_ALERT_" in name:
        return f"the client broke it off: {name.partition('_ALERT_')[2].lower().replace('_', ' ')}"
    return said or name.lower().replace("_", " ")


_DISTRUST: Final = "the client does not trust this broker's certificate"
_SAID: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth=required",
    "UNSUPPORTED_PROTOCOL": "it offers no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "it offers no cipher that this broker takes",
    "TLSV1_ALERT_UNKNOWN_CA": f"{_DISTRUST} (unknown authority)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _DISTRUST,
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_DISTRUST} (bad certificate)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_DISTRUST} (expired)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client speaks no version of TLS that ssl.enabled.protocols allows",
    "WRONG_VERSION_NUMBER": "what came is not TLS",
}
