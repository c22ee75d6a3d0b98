"""JSON records in the schema registry's framing, with a JSON Schema.

A record has to be valid by the schema that it was written with and by the reader's. Properties that
the reader's schema lacks are skipped. Properties that the record lacks have the `default` of the
reader's schema, or are null.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import types as T

from ottla_spark.record_schema import RecordSchema, UnusableSchema
from ottla_spark.schema_registry import FRAME_BYTES, frame_header
from ottla_spark.streaming.json_schema_types import JsonColumn, load_documents, to_column

Convert = Callable[[Any], Any]

_LONGS: Final = range(-(2**63), 2**63)


def column_type(schema: RecordSchema) -> T.DataType:
    """Spark's type of the schema's values. Raises UnusableSchema and PipelineError."""
    return to_column(schema).type


# -- from JSON to columns


def open_decoder(writer: RecordSchema, reader: RecordSchema, schema_id: int) -> Callable[[bytes | bytearray], Any]:
    """Decoder of records that have the id `schema_id` of the writer's schema; it raises ValueError
    as `framed_records.DecodeRecord` does. `open_decoder` itself raises UnusableSchema.
    """
    validators = [(load_documents(reader).validator(), "the reader's schema")]
    if (writer.text, writer.references) != (reader.text, reader.references):
        validators.insert(0, (load_documents(writer).validator(), f"schema {schema_id}"))
    convert = _converter_from_json(to_column(reader))

    def decode(value: bytes | bytearray) -> Any:
        try:
            parsed = _parse(memoryview(value)[FRAME_BYTES:].tobytes())
        except ValueError as error:
            raise ValueError(f"is not JSON after the id of its schema: {error}") from None
        for validator, name in validators:
            if not validator.is_valid(parsed):
                raise ValueError(f"is not valid by {name}: {_first_error(validator, parsed)}")
        try:
            return convert(parsed)
        except (ValueError, TypeError, OverflowError, binascii.Error) as error:
            raise ValueError(f"does not fit the columns of the reader's schema: {error}") from None

    return decode


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it has {name}")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _parse(data: bytes) -> Any:
    """Raises ValueError, also for half of a surrogate pair, which Spark's strings cannot have."""
    text = data.decode()
    if "\\ud" in text.lower():
        json.dumps(_DECODER.decode(text), ensure_ascii=False).encode()
    return _DECODER.decode(text)


def _first_error(validator: Any, value: Any) -> str:
    error = next(iter(validator.iter_errors(value)))
    where = "/".join(map(str, error.instance_path))
    return f"{error.message[:300]}{f' at /{where}' if where else ''}"


def _converter_from_json(column: JsonColumn) -> Convert:
    """Function from JSON values except null to Spark's."""
    if column.is_text:
        return lambda value: json.dumps(value, ensure_ascii=False)
    match column.type:
        case T.StructType():
            parts = [(name, *_with_default(it)) for name, it in column.parts.items()]
            return lambda value: tuple([_read_property(value, *part) for part in parts])
        case T.ArrayType():
            item = _converter_from_json(column.parts[""])
            return lambda values: [None if it is None else item(it) for it in values]
        case T.MapType():
            item = _converter_from_json(column.parts[""])
            return lambda values: {name: None if it is None else item(it) for name, it in values.items()}
    return _SCALARS.get(type(column.type)) or (lambda value: value)


def _with_default(column: JsonColumn) -> tuple[Convert, Any]:
    convert = _converter_from_json(column)
    try:
        return convert, None if column.default is None else convert(column.default)
    except (ValueError, TypeError, AttributeError):
        raise UnusableSchema(f"the default {column.default!r} is not of type {column.type.simpleString()}") from None


_MISSING: Final = object()


def _read_property(value: dict[str, Any], name: str, convert: Convert, default: Any) -> Any:
    found = value.get(name, _MISSING)
    if found is _MISSING:
        return default
    return None if found is None else convert(found)


def _to_long(value: float) -> int:
    """JSON Schema's integers include 1.0."""
    if (number := int(value)) not in _LONGS:
        raise ValueError(f"{number} is not in the range of BIGINT")
    return number


def parse_timestamp(text: str) -> datetime.datetime:
    """Parses ISO 8601. A time without an offset is in UTC."""
    time = datetime.datetime.fromisoformat(text)
    return time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)


_SCALARS: Final[dict[type[T.DataType], Convert]] = {
    T.LongType: _to_long,
    T.DoubleType: float,
    T.TimestampType: parse_timestamp,
    T.DateType: datetime.date.fromisoformat,
    T.BinaryType: lambda text: base64.b64decode(text, validate=True),
}


# -- from rows to JSON


def open_encoder(schema: RecordSchema, schema_id: int, columns: T.DataType) -> Callable[[Any], bytes]:
    """Function that encodes a row as a record with the id `schema_id`, and raises ValueError.
    `columns`: type of the rows. Raises PipelineError, and UnusableSchema if a column has no
    property.
    """
    column, validator, prefix = to_column(schema), load_documents(schema).validator(), frame_header(schema_id)
    names = columns.names if isinstance(columns, T.StructType) else []
    if unknown := [name for name in names if name not in column.parts]:
        raise UnusableSchema(f"the schema has no property {', '.join(unknown)}; it has {', '.join(column.parts)}")
    convert = _converter_to_json(columns, column)

    def encode(row: Any) -> bytes:
        value = convert(row)
        if not validator.is_valid(value):
            raise ValueError(_first_error(validator, value))
        return prefix + json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    return encode


def _converter_to_json(type_: T.DataType, column: JsonColumn | None) -> Convert:
    """Function from Spark's values except null to JSON's. A null of a property that is not nullable
    is left out. `column`: the schema's; None where the schema has none.
    """
    if column is not None and column.is_text and isinstance(type_, T.StringType):
        return json.loads
    parts = {} if column is None else column.parts
    match type_:
        case T.StructType():
            fields = [(it.name, _converter_to_json(it.dataType, parts.get(it.name))) for it in type_]
            omitted = {name for name, part in parts.items() if not part.allows_null}
            return lambda row: {
                name: None if value is None else convert(value)
                for (name, convert), value in zip(fields, row, strict=True)
                if value is not None or name not in omitted
            }
        case T.ArrayType():
            item = _converter_to_json(type_.elementType, parts.get(""))
            return lambda values: [None if it is None else item(it) for it in values]
        case T.MapType():
            item = _converter_to_json(type_.valueType, parts.get(""))
            return lambda values: {name: None if it is None else item(it) for name, it in values.items()}
        case T.TimestampType():
            return lambda value: value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
        case T.DateType():
            return lambda value: value.isoformat()
        case T.BinaryType():
            return lambda value: base64.b64encode(value).decode()
    return lambda value: value
