"""Produce, Fetch and Metadata requests as plain bytes, and a blocking connection, without any
client library.
"""

import socket
import struct
import time
from typing import NamedTuple

from crc32c import crc32c

from ottla_broker.wire.api_keys import ApiKey

ACKS_ALL, CORRELATION_ID = -1, 7
FETCH_WAIT_MS, FETCH_PARTITION_BYTES = 500, 60_000


class FetchRequest(NamedTuple):
    """`request`: with its size. `offset_at`: position of the fetch offset in it. `error_at`,
    `batches_at`: positions of the partition's error code and of the records' size in the response,
    which begins with its own size.
    """

    request: bytes
    offset_at: int
    error_at: int
    batches_at: int


def encode_batch(value: bytes) -> bytes:
    """An uncompressed record batch (magic 2) with one record without a key, timestamped now."""
    now = int(time.time() * 1000)
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    body = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + _varint(len(record)) + record
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def produce_request(topic: str, records: bytes, partition: int = 0) -> bytes:
    """A Produce request, version 7, with one batch for one partition, including its size."""
    name = topic.encode()
    content = struct.pack(f">hhiih{len(name)}s", -1, ACKS_ALL, 30_000, 1, len(name), name)
    content += struct.pack(">iii", 1, partition, len(records)) + records
    return frame_request(ApiKey.PRODUCE, 7, content)


def fetch_request(topic: str) -> FetchRequest:
    """A Fetch request, version 11, for partition 0 from offset 0, `read_uncommitted`. Like
    librdkafka's, it has no fetch session.
    """
    name = topic.encode()
    head = struct.pack(">iiiibii", -1, FETCH_WAIT_MS, 1, 50 << 20, 0, 0, -1)
    head += struct.pack(f">ih{len(name)}s", 1, len(name), name) + struct.pack(">iii", 1, 0, -1)
    content = head + struct.pack(">qqi", 0, -1, FETCH_PARTITION_BYTES) + struct.pack(">ih", 0, 0)
    request = frame_request(ApiKey.FETCH, 11, content)
    error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4 + 4
    batches_at = error_at + 2 + 8 + 8 + 8 + 4 + 4
    return FetchRequest(request, len(request) - len(content) + len(head), error_at, batches_at)


def produce_response(topic: str) -> bytes:
    """The response to `produce_request` without an error, including its size."""
    name = topic.encode()
    content = struct.pack(f">iih{len(name)}s", CORRELATION_ID, 1, len(name), name)
    content += struct.pack(">iihqqqi", 1, 0, 0, 0, -1, 0, 0)
    return struct.pack(">i", len(content)) + content


def metadata_request(topic: str) -> bytes:
    """A Metadata request, version 4, for one topic, which it creates if missing."""
    name = topic.encode()
    return frame_request(ApiKey.METADATA, 4, struct.pack(f">ih{len(name)}sb", 1, len(name), name, 1))


def frame_request(api: ApiKey, version: int, content: bytes) -> bytes:
    header = struct.pack(">hhih5s", api, version, CORRELATION_ID, 5, b"bench")
    return struct.pack(">i", len(header) + len(content)) + header + content


def error_code_offset(topic: str) -> int:
    """Offset of the error code in a Produce response with one partition, without its size."""
    return 4 + 4 + 2 + len(topic.encode()) + 4 + 4


def error_code(response: bytes, topic: str) -> int:
    return int(struct.unpack_from(">h", response, error_code_offset(topic))[0])


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> bytes:
        """Sends a request and returns the response without its size. Raises OSError."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size)
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


def wait_for_first_ack(port: int, topic: str, within_s: float) -> None:
    """Returns when a record is acknowledged in a topic, which is created if missing.

    Retries also before the port is open. Raises TimeoutError.
    """
    metadata, request = metadata_request(topic), produce_request(topic, encode_batch(b"first"))
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            connection = Connection(port)
            while time.monotonic() < deadline:
                connection.send(metadata)
                if error_code(connection.send(request), topic) == 0:
                    connection.close()
                    return
                time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
    raise TimeoutError(f"no record was acknowledged within {within_s} s")


def _varint(value: int) -> bytes:
    """Zigzag encoding, then seven bits per byte, lowest first."""
    left = (value << 1) ^ (value >> 31)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
