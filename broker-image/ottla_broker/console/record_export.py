"""Records as lines of JSON or rows of CSV, which the worker of a search writes for downloads."""

import re
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ottla_broker.console.record_fields import COLUMNS, list_cells, list_headers, put_field
from ottla_broker.console.schema_framing import NOT_DECODED, DecodedRecord
from ottla_broker.console.search_messages import ExportFormat
from ottla_broker.wire.records import Record

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Spreadsheets take cells that begin with them, or with their full-width forms, as formulas (OWASP,
CSV injection)."""
NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


class RecordExport(Protocol):
    """Writes one file: `add` each record, `take` what is ready to be sent, and at the end
    `finish`.
    """

    def add(self, partition: int, record: Record, decoded: DecodedRecord) -> None: ...

    def take(self) -> bytes: ...

    def finish(self) -> bytes: ...


class TextExport:
    """A file whose records are lines, each complete in itself."""

    def __init__(self, head: bytes, write_line: Callable[[int, Record, DecodedRecord], bytes]) -> None:
        self._lines = [head]
        self._write_line = write_line

    def add(self, partition: int, record: Record, decoded: DecodedRecord) -> None:
        self._lines.append(self._write_line(partition, record, decoded))

    def take(self) -> bytes:
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def finish(self) -> bytes:
        return self.take()


def make_export(export_format: ExportFormat) -> RecordExport:
    match export_format:
        case "jsonl":
            return TextExport(b"", json_line)
        case "csv":
            return TextExport(",".join(COLUMNS).encode() + b"\r\n", csv_line)
        case "parquet":
            from ottla_broker.console.parquet_export import ParquetExport  # loads its library

            return ParquetExport()


def json_line(partition: int, record: Record, decoded: DecodedRecord = NOT_DECODED) -> bytes:
    """A record as a line of JSON. Text is a string, and a value that is a JSON object or list is
    that JSON. What a schema has decoded is its JSON, with the schema's id under a name that ends
    with `SchemaId`. Other bytes are in base64 under a name that ends with `Base64`.
    """
    line: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp_ms}
    put_field(line, "key", record.key, decoded.key)
    put_field(line, "value", record.value, decoded.value)
    line["headers"] = list_headers(record)
    return msgspec.json.encode(line) + b"\n"


def csv_line(partition: int, record: Record, decoded: DecodedRecord = NOT_DECODED) -> bytes:
    """A record as a row of CSV (RFC 4180) with the COLUMNS, headers as JSON. Texts are in quotes,
    and numbers are not. A key or value has two columns, for text and for base64; both cells are
    empty if it is null, else one of them.
    """
    numbers = (partition, record.offset, record.timestamp_ms)
    cells = (*map(str, numbers), *map(quote_cell, list_cells(record, decoded)))
    return ",".join(cells).encode() + b"\r\n"


def quote_cell(text: str | None) -> str:
    """The text in quotes, with an apostrophe before one that a spreadsheet would take as a formula.
    Numbers are not formulas.
    """
    if text is None:
        return ""
    if text.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"'
