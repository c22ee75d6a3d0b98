"""The load program `bench/consumers.c` against a server that answers as a broker does."""

import os
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench import plain_requests, programs
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import ErrorCode
from tests.jars import skip_or_fail_in_ci

TOPIC = "t"
RECORDS = plain_requests.encode_batch(b"record")
FETCH_OFFSET_AT = plain_requests.fetch_request(TOPIC).offset_at
Respond = Callable[[int], bytes]


def fetch_response(offset: int, code: int = ErrorCode.none) -> bytes:
    """A Fetch response, version 11, with one batch at the offset; without records if there is an
    error.
    """
    records = b"" if code else struct.pack(">q", offset) + RECORDS[8:]
    topic = struct.pack(f">ih{len(TOPIC)}siih", 1, len(TOPIC), TOPIC.encode(), 1, 0, code)
    topic += struct.pack(">qqqiii", offset, offset, 0, -1, -1, len(records)) + records
    return _frame(struct.pack(">iihi", plain_requests.CORRELATION_ID, 0, ErrorCode.none, 0) + topic)


def refused_fetch(code: ErrorCode) -> bytes:
    """A Fetch response whose own error code is set: it has no topics."""
    return _frame(struct.pack(">iihii", plain_requests.CORRELATION_ID, 0, code, 0, 0))


def _frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@contextmanager
def run_server(respond: Respond) -> Iterator[int]:
    """Serves Produce and Fetch. `respond`: the response to a Fetch from this offset. Yields the
    port.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while size := self.rfile.read(4):
                request = size + self.rfile.read(*struct.unpack(">i", size))
                if struct.unpack_from(">h", request, 4) == (ApiKey.PRODUCE,):
                    self.wfile.write(plain_requests.produce_response(TOPIC))
                else:
                    self.wfile.write(respond(*struct.unpack_from(">q", request, FETCH_OFFSET_AT)))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """The program ends in the middle of a request."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def measure(respond: Respond) -> programs.ManyClientsResult:
    with run_server(respond) as port:
        return programs.measure_many_consumers(
            port, os.getpid(), TOPIC, consumers=2, per_s=100, warm_s=0.2, seconds=0.2
        )


@pytest.fixture(autouse=True)
def _compiled_program() -> None:
    try:
        programs.compile_program("consumers")
    except RuntimeError as error:
        skip_or_fail_in_ci(str(error))


def test_records_are_counted_after_a_partition_without_leader() -> None:
    codes = iter([ErrorCode.not_leader_or_follower] * 3)
    assert measure(lambda offset: fetch_response(offset, next(codes, ErrorCode.none))).per_s > 0


@pytest.mark.parametrize(
    ("respond", "code"),
    [
        (lambda offset: fetch_response(offset, ErrorCode.not_leader_or_follower), ErrorCode.not_leader_or_follower),
        (lambda _: refused_fetch(ErrorCode.fetch_session_id_not_found), ErrorCode.fetch_session_id_not_found),
    ],
)
def test_errors_are_not_measured(respond: Respond, code: ErrorCode) -> None:
    with pytest.raises(RuntimeError, match=f"consumers: a Fetch response has error {code:d}"):
        measure(respond)
