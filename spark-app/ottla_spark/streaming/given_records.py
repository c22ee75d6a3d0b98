"""Encodes the records of test cases, which people write as JSON, with the schema and the framing of
the source.

A value that does not match its schema is an error of the test case. Records of a JSON Schema are
not validated, so that a case can have invalid ones.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as T

from ottla_spark.protobuf_schemas import encode_message_indexes, find_message, message_indexes, parse_file_descriptor
from ottla_spark.record_schema import RecordSchema
from ottla_spark.schema_registry import frame_header
from ottla_spark.streaming.avro_records import open_encoder
from ottla_spark.streaming.avro_types import to_spark_type
from ottla_spark.streaming.json_schema_records import parse_timestamp

EncodeJson = Callable[[Any], bytes]
"""Encodes a key or value, given as parsed JSON, as bytes of a record. Raises ValueError with the
reason."""

GIVEN_ID: Final = 0
"""Schema id in the framing of given records. No registry has it: given records are encoded with the
reader's schema."""


def given_encoder(schema: RecordSchema | None) -> EncodeJson:
    """`schema`: schema of a source in the registry's framing, otherwise None."""
    if schema is None:
        return encode_text
    return {"avro": _avro_encoder, "protobuf": _protobuf_encoder, "json": _json_encoder}[schema.type](schema)


def encode_text(value: Any) -> bytes:
    """Text as it is, other values as JSON."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _json_encoder(schema: RecordSchema) -> EncodeJson:
    return lambda value: frame_header(GIVEN_ID) + json.dumps(value).encode()


def _protobuf_encoder(schema: RecordSchema) -> EncodeJson:
    message = find_message(parse_file_descriptor(schema.text), schema.message)
    new, prefix = GetMessageClass(message), frame_header(GIVEN_ID) + encode_message_indexes(message_indexes(message))

    def encode(value: Any) -> bytes:
        try:
            return prefix + bytes(json_format.ParseDict(value, new()).SerializeToString())
        except (json_format.Error, AttributeError, TypeError) as error:
            raise ValueError(f"not a message {message.full_name}: {error}") from None

    return encode


def _avro_encoder(schema: RecordSchema) -> EncodeJson:
    type_ = to_spark_type(schema.text)
    encode = open_encoder(schema, GIVEN_ID, type_)

    def encode_json(value: Any) -> bytes:
        try:
            return encode(_to_avro(value, type_))
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"not a value of the Avro schema: {error}") from None

    return encode_json


def _to_avro(value: Any, type_: T.DataType) -> Any:
    """Converts text to values of types that JSON lacks, as Spark reads JSON."""
    if value is None:
        return None
    match type_:
        case T.StructType():
            known = {it.name: it.dataType for it in type_}
            if unknown := [name for name in value if name not in known]:
                raise ValueError(f"there is no field {', '.join(unknown)}; there are {', '.join(known)}")
            return {name: _to_avro(it, known[name]) for name, it in value.items()}
        case T.ArrayType():
            return [_to_avro(it, type_.elementType) for it in value]
        case T.MapType():
            return {name: _to_avro(it, type_.valueType) for name, it in value.items()}
        case T.TimestampType():
            return parse_timestamp(value)
        case T.DateType():
            return date.fromisoformat(value)
        case T.DecimalType():
            return Decimal(str(value))
        case T.BinaryType():
            return base64.b64decode(value, validate=True)
    return value
