"""Keys, values and headers of records as the fields of an exported file."""

import base64
from typing import Final, NamedTuple

import msgspec

from ottla_broker.console.record_display import encode_as_json
from ottla_broker.console.schema_framing import DecodedBytes, DecodedRecord
from ottla_broker.wire.records import Record

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "keyBase64", "value", "valueBase64", "headers")
"""Columns of CSV and Parquet. The objects of JSON lines have the same names, and `keySchemaId` and
`valueSchemaId`.
"""


class ExportField(NamedTuple):
    """A key or value as text, or in base64 if it is neither UTF-8 nor decoded by a schema. Null has
    neither. `schema_id`: the id of the schema that has decoded the text, which is then JSON.
    """

    text: str | None = None
    base64: str | None = None
    schema_id: int | None = None


def make_export_field(data: bytes | None, decoded: DecodedBytes | None = None) -> ExportField:
    if data is None:
        return ExportField()
    if decoded is not None and (encoded := encode_as_json(decoded)) is not None:
        return ExportField(encoded.decode(), schema_id=decoded.schema_id)
    try:
        return ExportField(data.decode())
    except UnicodeDecodeError:
        return ExportField(base64=base64.b64encode(data).decode())


def list_cells(record: Record, decoded: DecodedRecord) -> tuple[str | None, ...]:
    """The cells of the COLUMNS from `key` on, headers as JSON."""
    key, value = make_export_field(record.key, decoded.key), make_export_field(record.value, decoded.value)
    headers = msgspec.json.encode(list_headers(record)).decode()
    return key.text, key.base64, value.text, value.base64, headers


def list_headers(record: Record) -> list[dict[str, object]]:
    headers = []
    for name, value in record.headers:
        header: dict[str, object] = {"name": name.encode(errors="replace").decode()}
        put_field(header, "value", value)
        headers.append(header)
    return headers


def put_field(line: dict[str, object], name: str, data: bytes | None, decoded: DecodedBytes | None = None) -> None:
    """Adds a key or value to the JSON object `line`, under the name that its form needs."""
    text, in_base64, schema_id = make_export_field(data, decoded)
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
    """The text as JSON; the text itself if it is not JSON."""
    try:
        msgspec.json.decode(text)
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return text
