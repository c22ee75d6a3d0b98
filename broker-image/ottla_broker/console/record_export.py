"""Records as lines of JSON or rows of CSV, which the worker of a search writes for downloads."""

import base64
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from ottla_broker.console.record_display import encode_decoded
from ottla_broker.console.schema_framing import NOT_DECODED, DecodedBytes, DecodedRecord
from ottla_broker.console.search_messages import ExportFormat
from ottla_broker.wire.records import Record

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "keyBase64", "value", "valueBase64", "headers")
"""Of CSV and Parquet; lines of JSON use the same names."""
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
            from ottla_broker.console.parquet_export import ParquetExport  # its library is loaded for it only

            return ParquetExport()


class Field(NamedTuple):
    """A key or value as text, or in base64 if it is neither UTF-8 nor decoded by a schema; null has
    neither. `schema_id`: of the schema whose JSON the text is.
    """

    text: str | None = None
    base64: str | None = None
    schema_id: int | None = None


def read_field(data: bytes | None, decoded: DecodedBytes | None = None) -> Field:
    if data is None:
        return Field()
    if decoded is not None and (encoded := encode_decoded(decoded)) is not None:
        return Field(encoded.decode(), schema_id=decoded.schema_id)
    try:
        return Field(data.decode())
    except UnicodeDecodeError:
        return Field(base64=base64.b64encode(data).decode())


def json_line(partition: int, record: Record, decoded: DecodedRecord = NOT_DECODED) -> bytes:
    """A record as a line of JSON: text as strings, JSON values as they are under `value`, what a
    schema has decoded as its JSON, other bytes in base64 under a name that ends with `Base64`.
    """
    line: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp_ms}
    _put(line, "key", record.key, decoded.key)
    _put(line, "value", record.value, decoded.value)
    line["headers"] = list_headers(record)
    return msgspec.json.encode(line) + b"\n"


def csv_line(partition: int, record: Record, decoded: DecodedRecord = NOT_DECODED) -> bytes:
    """A record as a row of CSV (RFC 4180) with the COLUMNS, headers as JSON. Texts are in quotes: a
    cell without them is null, or is in the column beside it.
    """
    numbers = (partition, record.offset, record.timestamp_ms)
    cells = (*map(str, numbers), *map(quote_cell, list_texts(record, decoded)))
    return ",".join(cells).encode() + b"\r\n"


def quote_cell(text: str | None) -> str:
    """With an apostrophe before what a spreadsheet would take as a formula, but for numbers."""
    if text is None:
        return ""
    if text.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"'


def list_texts(record: Record, decoded: DecodedRecord) -> tuple[str | None, ...]:
    """The COLUMNS from `key` on, headers as JSON."""
    key, value = read_field(record.key, decoded.key), read_field(record.value, decoded.value)
    headers = msgspec.json.encode(list_headers(record)).decode()
    return key.text, key.base64, value.text, value.base64, headers


def list_headers(record: Record) -> list[dict[str, object]]:
    headers = []
    for name, value in record.headers:
        header: dict[str, object] = {"name": name.encode(errors="replace").decode()}
        _put(header, "value", value)
        headers.append(header)
    return headers


def _put(line: dict[str, object], name: str, data: bytes | None, decoded: DecodedBytes | None = None) -> None:
    text, in_base64, schema_id = read_field(data, decoded)
    if in_base64 is not None:
        line[f"{name}Base64"] = in_base64
    elif text is not None and schema_id is not None:
        line[name] = msgspec.Raw(text.encode())
        line[f"{name}SchemaId"] = schema_id
    elif text is not None and name == "value" and text[:1] in ("{", "["):
        line[name] = _read_json(text)
    else:
        line[name] = text


def _read_json(text: str) -> msgspec.Raw | str:
    """The text itself if it is no JSON."""
    try:
        msgspec.json.decode(text)
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return text
