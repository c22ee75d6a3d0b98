"""Encodes JSON values in Avro. The JSON has the form in which the console shows decoded values.

Bytes are base64, and UUIDs are text. Decimals are text or numbers. Dates, times and timestamps are
text, or the integer that Avro stores. A value of a union belongs to the first branch that it fits,
or names its branch as in Avro's JSON encoding: `{"string": "a"}`.
"""

import base64
import binascii
import io
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro

from ottla_broker.registry.languages.value_mismatch import ValueMismatch

INTEGER_BITS: Final = {"int": 32, "long": 64}
TEXT_FORMS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "date": ("a date such as 2026-01-31", date.fromisoformat),
    "time-millis": ("a time such as 12:30:00.250", time.fromisoformat),
    "time-micros": ("a time such as 12:30:00.250", time.fromisoformat),
    "timestamp-millis": ("a timestamp such as 2026-01-31T12:00:00Z", datetime.fromisoformat),
    "timestamp-micros": ("a timestamp such as 2026-01-31T12:00:00Z", datetime.fromisoformat),
    "local-timestamp-millis": ("a timestamp such as 2026-01-31T12:00:00", datetime.fromisoformat),
    "local-timestamp-micros": ("a timestamp such as 2026-01-31T12:00:00", datetime.fromisoformat),
    "uuid": ("a UUID", UUID),
    "decimal": ("a decimal number", Decimal),
}
"""Logical type → the form of its text, and the function that parses it."""
UNWRITABLE: Final = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
"""What parsers and fastavro raise for values that they cannot take."""


def write_avro(schema: Any, value: Any) -> bytes:
    """The value in Avro's binary encoding. `schema`: JSON of a schema without references. `value`:
    JSON whose numbers with a fraction are Decimals. Raises ValueMismatch.
    """
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named)
    stream = io.BytesIO()
    try:
        fastavro.schemaless_writer(stream, parsed, AvroValues(named).convert(parsed, value, ""))
    except UNWRITABLE as reason:
        raise ValueMismatch.at("", f"a value that Avro can write ({reason})") from None
    return stream.getvalue()


class AvroValues:
    """Converts values to those that fastavro writes. `named`: types by their full names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def convert(self, schema: Any, value: Any, path: str) -> Any:
        """`path`: that of the value, for errors. Raises ValueMismatch."""
        if isinstance(schema, list):
            return self._convert_union(schema, value, path)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and schema.get("logicalType") in TEXT_FORMS and not is_integer_of(kind, value):
            return convert_logical(schema, value, path)
        match kind:
            case "record" | "error":
                return self._convert_record(schema, value, path)
            case "array":
                items = expect(value, list, "an array", path)
                return [self.convert(schema["items"], one, f"{path}[{at}]") for at, one in enumerate(items)]
            case "map":
                entries = expect(value, dict, "an object", path)
                return {
                    name: self.convert(schema["values"], one, join_path(path, name)) for name, one in entries.items()
                }
            case "enum":
                if value not in schema["symbols"]:
                    raise ValueMismatch.at(path, f"one of {', '.join(schema['symbols'])}", value)
                return value
            case "fixed":
                data = parse_base64(value, path)
                if len(data) != schema["size"]:
                    raise ValueMismatch.at(path, f"{schema['size']} bytes in base64", value)
                return data
            case _:
                return convert_primitive(kind, value, path)

    def _convert_record(self, schema: Any, value: Any, path: str) -> dict[str, Any]:
        given, fields = expect(value, dict, "an object", path), schema["fields"]
        known = {field["name"] for field in fields}
        for name in given:
            if name not in known:
                raise ValueMismatch.at(join_path(path, name), f"one of the fields {', '.join(sorted(known))}", name)
        record = {}
        for field in fields:
            name = field["name"]
            if name in given:
                record[name] = self.convert(field["type"], given[name], join_path(path, name))
            elif "default" in field:
                record[name] = self._default(field)
            else:
                raise ValueMismatch.at(join_path(path, name), "a value, because the field has no default")
        return record

    def _default(self, field: Any) -> Any:
        """The default of a field. In JSON a default of bytes has one character for each byte."""
        kind, default = field["type"], field["default"]
        kind = self._named.get(kind, kind) if isinstance(kind, str) else kind
        kind = kind["type"] if isinstance(kind, dict) else kind
        return default.encode("latin-1") if kind in ("bytes", "fixed") else default

    def _convert_union(self, branches: list[Any], value: Any, path: str) -> Any:
        reasons = []
        for branch in branches:
            try:
                return self._branch_name(branch), self.convert(branch, value, path)
            except ValueMismatch as reason:
                reasons.append((branch, reason))
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            for branch in branches:
                if self._branch_name(branch) == name:
                    return name, self.convert(branch, inner, path)
        others = [reason for branch, reason in reasons if self._branch_name(branch) != "null"]
        if len(others) == 1 and value is not None:
            raise others[0]
        raise ValueMismatch.at(path, f"one of {', '.join(map(self._branch_name, branches))}", value)

    def _branch_name(self, branch: Any) -> str:
        """The name of the branch in fastavro and in Avro's JSON encoding."""
        if isinstance(branch, str):
            return branch
        return str(branch.get("name") or branch["type"])


def convert_logical(schema: dict[str, Any], value: Any, path: str) -> Any:
    wanted, parse = TEXT_FORMS[schema["logicalType"]]
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueMismatch.at(path, wanted, value)
    try:
        converted = parse(str(value))
    except UNWRITABLE:
        raise ValueMismatch.at(path, wanted, value) from None
    if isinstance(converted, Decimal) and not can_hold(schema, converted):
        raise ValueMismatch.at(
            path, f"at most {schema['precision']} digits, {schema.get('scale', 0)} of them after the point", value
        )
    if isinstance(converted, datetime) and (converted.tzinfo is None) != schema["logicalType"].startswith("local"):
        raise ValueMismatch.at(path, wanted, value)
    try:
        fastavro.schemaless_writer(io.BytesIO(), schema, converted)
    except UNWRITABLE as reason:
        raise ValueMismatch.at(path, f"{wanted} that the schema can hold ({reason})", value) from None
    return converted


def can_hold(schema: Mapping[str, Any], number: Decimal) -> bool:
    """True if the number has no more digits than the schema of decimals allows."""
    if not number.is_finite():
        return False
    scale = schema.get("scale", 0)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return -exponent <= scale and (not number or number.adjusted() + 1 + scale <= schema["precision"])


def convert_primitive(kind: str, value: Any, path: str) -> Any:
    match kind:
        case "null":
            if value is not None:
                raise ValueMismatch.at(path, "null", value)
            return None
        case "boolean":
            return expect(value, bool, "true or false", path)
        case "int" | "long":
            bits = INTEGER_BITS[kind]
            if not is_integer_of(kind, value) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                raise ValueMismatch.at(path, f"an integer of {bits} bits", value)
            return value
        case "float" | "double":
            if isinstance(value, bool) or not isinstance(value, int | Decimal):
                raise ValueMismatch.at(path, "a number", value)
            return float(value)
        case "string":
            return expect(value, str, "a string", path)
        case _:
            return parse_base64(value, path)


def is_integer_of(kind: str, value: Any) -> bool:
    """True if the value is an integer and the type is one of integers."""
    return kind in INTEGER_BITS and isinstance(value, int) and not isinstance(value, bool)


def parse_base64(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(expect(value, str, "bytes in base64", path), validate=True)
    except (binascii.Error, ValueError):
        raise ValueMismatch.at(path, "bytes in base64", value) from None


def expect(value: Any, kind: type, wanted: str, path: str) -> Any:
    """The value, if it is of the kind. Raises ValueMismatch, which says what is wanted."""
    if not isinstance(value, kind):
        raise ValueMismatch.at(path, wanted, value)
    return value


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
