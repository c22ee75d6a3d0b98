"""`python -m ottla_broker.console.search_worker`: reads the records of one search, beside the
broker, which serves its clients meanwhile.

Requests and responses (`search_messages`) are on standard input and output. The process may use a
bounded amount of memory and yields to others. The broker ends it with the search, and when a
request takes too long.
"""

import os
import resource
import sys
from typing import BinaryIO, Final

import msgspec

from ottla_broker.console.record_display import (
    display_record,
    json_line,
)
from ottla_broker.console.record_filter import FilterError, RecordFilter
from ottla_broker.console.search_messages import LENGTH, Request, Response, ScanRecords, StartSearch
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import iter_records

MAX_MEMORY_BYTES: Final = 768 << 20
"""Of data: a batch may decompress to 128 MB, of which records are copies."""
NICENESS: Final = 10


class Scanner:
    """Raises FilterError."""

    def __init__(self, start: StartSearch) -> None:
        self._filter = RecordFilter(start.expression, start.key)
        self._start = start

    def scan(self, request: ScanRecords) -> Response:
        """Stops after `limit` records found: `next_offset` is after the last of them then."""
        response, lines = Response(next_offset=request.first), []
        for header, record in iter_records(request.records):
            if record.offset < request.first or header.is_control:
                continue
            if 0 <= request.end <= record.offset:
                break
            response.scanned += 1
            response.next_offset = record.offset + 1
            try:
                is_found = self._filter.matches(request.partition, record)
            except FilterError as reason:
                response.failed += 1
                response.failure = response.failure or f"offset {record.offset}: {reason}"
                continue
            if is_found:
                response.found_count += 1
                if self._start.is_export:
                    lines.append(json_line(request.partition, record))
                else:
                    response.found.append(display_record(request.partition, record, self._start.form))
                if response.found_count >= request.limit:
                    break
        response.lines = b"".join(lines)
        return response


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Until the broker closes its end."""
    decode = msgspec.msgpack.Decoder(Request).decode
    scanner: Scanner | None = None
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        request = decode(requests.read(*LENGTH.unpack(head)))
        try:
            if isinstance(request, StartSearch):
                scanner, response = Scanner(request), Response()
            else:
                assert scanner is not None
                response = scanner.scan(request)
        except (FilterError, KafkaError) as reason:
            response = Response(error=str(reason))
        except MemoryError:
            response = Response(error="a batch of records needs too much memory")
        data = msgspec.msgpack.encode(response)
        responses.write(LENGTH.pack(len(data)) + data)
        responses.flush()


if __name__ == "__main__":
    main()
