"""Selects the records of a search: those with a given key, or for which a CEL expression is true.

An expression uses `key`, `value`, `headers`, `timestamp`, `partition` and `offset`
(https://cel.dev). A key or value that a schema decodes, and a value in JSON, is its object, list,
number or boolean, so that expressions can name its fields. Other UTF-8 is a string, and other keys
and values are bytes. CEL has no unbounded loops, and expressions have access to these variables
only.
"""

import re
from datetime import UTC, datetime
from typing import Any, Final

import cel
import msgspec

from ottla_broker.console.schema_framing import NOT_DECODED, DecodedRecord
from ottla_broker.wire.records import Record

VARIABLES: Final = ("key", "value", "headers", "timestamp", "partition", "offset")
BINDING: Final = re.compile(r"\.(?:all|exists|exists_one|filter|map)\s*\(\s*(\w+)\s*,")
"""Finds the variables that macros name for the elements of a list."""
MAX_EXPRESSION: Final = 4000
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999


class FilterError(ValueError):
    """The reason why an expression is not a filter, or why it has no result for a record."""


class RecordFilter:
    """`key`: only records with this key match; None: any key. An empty expression is true for all
    records. Raises FilterError for one that is invalid.
    """

    def __init__(self, expression: str, key: bytes | None) -> None:
        self._key = key
        self._program = compile_expression(expression) if expression else None

    def matches(self, partition: int, record: Record, decoded: DecodedRecord = NOT_DECODED) -> bool:
        """Raises FilterError if the expression has no result for the record, for example because
        the record lacks a field.
        """
        if self._key is not None and record.key != self._key and not is_key_text(decoded, self._key):
            return False
        if self._program is None:
            return True
        try:
            result = self._program.execute(make_variables(partition, record, decoded))
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise FilterError(f"{type(error).__name__}: {error}") from None
        if result is True or result is False:
            return result
        raise FilterError(f"the filter results in {type(result).__name__}, not in true or false")


def compile_expression(expression: str) -> cel.Program:
    """Raises FilterError."""
    if len(expression) > MAX_EXPRESSION:
        raise FilterError(f"the filter has {len(expression)} characters; allowed: {MAX_EXPRESSION}")
    try:
        program = cel.compile(expression)
    except ValueError as error:
        raise FilterError(f"the filter is not a CEL expression: {str(error).splitlines()[0]}") from None
    bound = {found.group(1) for found in BINDING.finditer(expression)}
    unknown = sorted(set(program.variables()) - set(VARIABLES) - bound)
    if unknown:
        raise FilterError(f"the filter uses {unknown[0]!r}; allowed: {', '.join(VARIABLES)}")
    return program


def is_key_text(decoded: DecodedRecord, text: bytes) -> bool:
    """True if a schema has decoded the key, as this text."""
    found = None if decoded.key is None else decoded.key.value
    return isinstance(found, str) and found.encode(errors="replace") == text


def make_variables(partition: int, record: Record, decoded: DecodedRecord) -> dict[str, Any]:
    return {
        "key": decode(record.key) if decoded.key is None else decoded.key.value,
        "value": decode_value(record.value) if decoded.value is None else decoded.value.value,
        "headers": {name: decode(value) for name, value in record.headers},
        "timestamp": datetime.fromtimestamp(min(max(record.timestamp_ms, 0), MAX_TIMESTAMP_MS) / 1000, UTC),
        "partition": partition,
        "offset": record.offset,
    }


def decode_value(data: bytes | None) -> Any:
    """The decoded JSON of a value that is JSON; otherwise as `decode`."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return decode(data)


def decode(data: bytes | None) -> str | bytes | None:
    """Text of UTF-8; other bytes as they are."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
