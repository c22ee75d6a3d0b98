"""Finds records in batches that the broker has fetched: the work of a search's process."""

from typing import Any, BinaryIO

import msgspec

from ottla_broker.console.cpu_limit import Pacer, find_cpu_limit
from ottla_broker.console.record_display import display_record
from ottla_broker.console.record_export import RecordExport, make_export
from ottla_broker.console.record_filter import FilterError, RecordFilter
from ottla_broker.console.schema_framing import NOT_DECODED
from ottla_broker.console.search_messages import (
    LENGTH,
    AddSchemas,
    FinishExport,
    ScanRecords,
    SearchRequest,
    SearchResponse,
    StartSearch,
)
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import iter_records


class Scanner:
    """Scans the batches of one search. `cpu_limit`: number of processors that the container may
    use; None: all. Raises FilterError for an invalid filter.
    """

    def __init__(self, start: StartSearch, cpu_limit: float | None = None) -> None:
        self._pacer = None if cpu_limit is None else Pacer(cpu_limit)
        self._filter = RecordFilter(start.expression, start.key)
        self._start = start
        self._export: RecordExport | None = None if start.export_format is None else make_export(start.export_format)
        self._decoder: Any = None
        if start.has_registry:
            from ottla_broker.console.schema_decoding import SchemaDecoder  # needs the libraries of another extra

            self._decoder = SchemaDecoder()

    def add_schemas(self, request: AddSchemas) -> None:
        if self._decoder is not None:
            self._decoder.add_schemas(request.sources)

    def scan(self, request: ScanRecords) -> SearchResponse:
        """Stops at the limit of found records: `next_offset` is then after the last of them. Raises
        KafkaError for a corrupt batch.
        """
        response, exported, unknown_ids = SearchResponse(next_offset=request.first), [], set()
        for header, record in iter_records(request.records):
            if self._pacer is not None:
                self._pacer.pause_if_due(request.searches)
            if record.offset < request.first or header.is_control:
                continue
            if 0 <= request.end <= record.offset:
                break
            decoded = NOT_DECODED
            if self._decoder is not None:
                unknown_ids.update(self._decoder.unknown_ids(record))
                if unknown_ids:
                    continue
                decoded = self._decoder.decode(record)
            response.scanned += 1
            response.next_offset = record.offset + 1
            try:
                is_found = self._filter.matches(request.partition, record, decoded)
            except FilterError as reason:
                response.failed += 1
                response.failure = response.failure or f"offset {record.offset}: {reason}"
                continue
            if is_found:
                response.found_count += 1
                if self._export is not None:
                    exported.append((record, decoded))
                else:
                    shown = display_record(request.partition, record, self._start.form, self._start.max_shown, decoded)
                    response.found.append(shown)
                if response.found_count >= request.limit:
                    break
        if unknown_ids:
            return SearchResponse(unknown_ids=sorted(unknown_ids))
        if self._export is not None:
            for record, decoded in exported:
                self._export.add(request.partition, record, decoded)
            response.exported = self._export.take()
        return response

    def finish_export(self) -> SearchResponse:
        return SearchResponse(exported=b"" if self._export is None else self._export.finish())


def serve(requests: BinaryIO, responses: BinaryIO) -> None:
    """Responds to requests until the broker closes its end of the pipe."""
    decode = msgspec.msgpack.Decoder(SearchRequest).decode
    scanner: Scanner | None = None
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        request = decode(requests.read(*LENGTH.unpack(head)))
        try:
            if isinstance(request, StartSearch):
                scanner, response = Scanner(request, find_cpu_limit()), SearchResponse()
            elif scanner is not None and isinstance(request, AddSchemas):
                scanner.add_schemas(request)
                response = SearchResponse()
            elif scanner is not None and isinstance(request, FinishExport):
                response = scanner.finish_export()
            else:
                assert scanner is not None and isinstance(request, ScanRecords)
                response = scanner.scan(request)
        except (FilterError, KafkaError) as reason:
            response = SearchResponse(error=str(reason))
        except MemoryError:
            response = SearchResponse(error="a batch of records needs too much memory")
        data = msgspec.msgpack.encode(response)
        responses.write(LENGTH.pack(len(data)) + data)
        responses.flush()
