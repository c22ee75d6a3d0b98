"""The client behind a request that a broker passes on in an Envelope (KIP-590): its principal and
address as bytes.

The principal is Kafka's DefaultPrincipalData, after the two bytes of its version.
"""

import socket
import struct
from typing import Final

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData

from ottla_broker.wire.message_reader import Cursor, MalformedMessage, message_reader
from ottla_broker.wire.message_writer import message_writer

VERSION: Final = bytes(2)
IPV4_BYTES: Final = 4
IPV6_BYTES: Final = 16


def write_principal(kind: str, name: str, *, token_authenticated: bool = False) -> bytes:
    out = bytearray(VERSION)
    data = DefaultPrincipalData(type_=kind, name=name, token_authenticated=token_authenticated)
    message_writer(DefaultPrincipalData)(out, data)
    return bytes(out)


def read_principal(data: bytes) -> tuple[str, str, bool]:
    """Kind, name, and whether it has logged in with a delegation token. Raises MalformedMessage."""
    try:
        found: DefaultPrincipalData = message_reader(DefaultPrincipalData)(Cursor(data, len(VERSION)))
    except struct.error as error:
        raise MalformedMessage(f"the principal of an Envelope ends early: {error}") from error
    return found.type_, found.name, found.token_authenticated


def write_host(host: str) -> bytes:
    """`host`: the IP address by which a socket names its peer; on a simulated network a name."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    except OSError:
        return host.encode()


def read_host(data: bytes) -> str:
    if len(data) in (IPV4_BYTES, IPV6_BYTES):
        return socket.inet_ntop(socket.AF_INET if len(data) == IPV4_BYTES else socket.AF_INET6, data)
    return data.decode(errors="replace")
