"""Requests as plain bytes, and a connection that asks one thing at a time, without any client library in between."""

import socket
import struct
import time

from crc32c import crc32c

ACKS_ALL = -1


def batch(value: bytes) -> bytes:
    """A record batch (magic 2) of one record without a key, uncompressed, stamped now."""
    now = int(time.time() * 1000)
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    body = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + _varint(len(record)) + record
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def produce_request(topic: str, records: bytes) -> bytes:
    """Produce version 7 of one batch to partition 0, with its frame."""
    name = topic.encode()
    content = struct.pack(f">hhiih{len(name)}s", -1, ACKS_ALL, 30_000, 1, len(name), name)
    content += struct.pack(">iii", 1, 0, len(records)) + records
    return _request(0, 7, content)


def metadata_request(topic: str) -> bytes:
    """Metadata version 4 of one topic, which makes it when it is not there."""
    name = topic.encode()
    return _request(3, 4, struct.pack(f">ih{len(name)}sb", 1, len(name), name, 1))


def _request(api: int, version: int, content: bytes) -> bytes:
    header = struct.pack(">hhih5s", api, version, 7, 5, b"bench")
    return struct.pack(">i", len(header) + len(content)) + header + content


def error_at(topic: str) -> int:
    """Where in a response to `produce_request` the error code of its one partition is."""
    return 4 + 4 + 2 + len(topic.encode()) + 4 + 4


def error_of(response: bytes, topic: str) -> int:
    return int(struct.unpack_from(">h", response, error_at(topic))[0])


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Sends a request and returns the whole response without its frame. OSError."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        got = self._socket.recv(size)
        while len(got) < size:
            part = self._socket.recv(size - len(got))
            if not part:
                raise ConnectionError("the broker closed the connection")
            got += part
        return got


def first_ack(port: int, topic: str, within_s: float) -> None:
    """Returns when one record was acknowledged in a topic that is made if need be; tries from before the port is open.
    TimeoutError."""
    ask, request = metadata_request(topic), produce_request(topic, batch(b"first"))
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            connection = Connection(port)
            while time.monotonic() < deadline:
                connection.ask(ask)
                if error_of(connection.ask(request), topic) == 0:
                    connection.close()
                    return
                time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
    raise TimeoutError(f"no record was acknowledged within {within_s} s")


def _varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte, lowest first."""
    left = (value << 1) ^ (value >> 31)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
