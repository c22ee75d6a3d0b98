"""Formats of records in text: the lines that `ottla produce` reads, and the output of `ottla
consume -o json`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, overload

import msgspec

from ottla_broker.wire.records import Record

JSON_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError)


class InvalidLine(Exception):
    """A line that does not have the expected format."""


@dataclass(frozen=True, slots=True)
class AddressedRecord:
    """A record and its destination. Without a partition, the key determines it."""

    topic: str
    partition: int | None
    record: Record


class JsonRecord(msgspec.Struct):
    """A record as a line of JSON. `timestamp`: milliseconds since 1970, or ISO 8601.

    Keys and values that are JSON strings are used without the quotes, null is no key or value, and
    anything else is used as JSON text.
    """

    topic: str | None = None
    key: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()
    partition: int | None = None
    timestamp: int | str | None = None
    headers: dict[str, str | None] = {}


LineReader = Callable[[bytes, int], AddressedRecord]
"""Parses a line, given without its newline and with the current time in ms. Raises InvalidLine."""


def json_record_reader(topic: str | None) -> LineReader:
    """Lines are JsonRecords. `topic`: default of lines without one."""
    decode = msgspec.json.Decoder(JsonRecord).decode

    def read(text: bytes, now_ms: int) -> AddressedRecord:
        try:
            line = decode(text)
            key, value = _bytes(line.key), _bytes(line.value)
        except JSON_ERRORS as error:
            raise InvalidLine(str(error)) from error
        if (to := line.topic or topic) is None:
            raise InvalidLine("the record has no topic, and the command line names none")
        headers = tuple((name, None if it is None else it.encode()) for name, it in line.headers.items())
        timestamp_ms = now_ms if line.timestamp is None else _time_ms(line.timestamp)
        return AddressedRecord(to, line.partition, Record(timestamp_ms, key, value, headers))

    return read


def value_reader(
    topic: str,
    *,
    partition: int | None = None,
    key_separator: str | None = None,
    key_fields: Sequence[str] = (),
    timestamp_field: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> LineReader:
    """Lines are values.

    `key_separator`: the text before it is the key. `key_fields`, `timestamp_field`: lines are JSON
    objects, and these fields are the key or the timestamp.
    """
    separator = key_separator.encode() if key_separator is not None else None
    encoded_headers = tuple((key, value.encode()) for key, value in headers)

    def read(text: bytes, now_ms: int) -> AddressedRecord:
        key, value, timestamp_ms = None, text, now_ms
        if separator is not None:
            key, found, value = text.partition(separator)
            if not found:
                raise InvalidLine(f"no {key_separator!r} between key and value")
        if key_fields or timestamp_field:
            fields = _object(text)
            if key_fields:
                key = "|".join(_text(_field(fields, it)) for it in key_fields).encode()
            if timestamp_field:
                timestamp_ms = _time_ms(_field(fields, timestamp_field))
        return AddressedRecord(topic, partition, Record(timestamp_ms, key, value, encoded_headers))

    return read


def record_to_json(topic: str, partition: int, record: Record) -> str:
    """A line that `ottla produce --lines` accepts. Bytes that are not UTF-8 become replacement
    characters. Of headers with the same key, only the last is kept.
    """
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": decode_text(record.key),
        "value": _json_or_text(record.value),
    }
    if record.headers:
        shown["headers"] = {key: decode_text(value) for key, value in record.headers}
    return json.dumps(shown, ensure_ascii=False)


@overload
def decode_text(data: bytes) -> str: ...
@overload
def decode_text(data: bytes | None) -> str | None: ...
def decode_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _json_or_text(data: bytes | None) -> Any:
    """Objects and lists as JSON: white space and the form of numbers may change, and of fields with
    the same name only the last is kept. Everything else, numbers too, as text, so that parsing
    restores the same bytes.
    """
    if data is None:
        return None
    if data[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except ValueError:
            pass
    return decode_text(data)


def _bytes(raw: msgspec.Raw) -> bytes | None:
    """The bytes of a key or value. None for null, and for a field that is not set, whose text is
    empty.
    """
    data = bytes(raw)
    if data[:1] == b'"':
        return msgspec.json.decode(data, type=str).encode()
    return None if data in (b"", b"null") else data


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except JSON_ERRORS as error:
        raise InvalidLine(str(error)) from error
    if not isinstance(found, dict):
        raise InvalidLine("not a JSON object")
    return found


def _field(fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise InvalidLine(f"no field {name!r}; fields: {', '.join(fields)}")
    return fields[name]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _time_ms(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidLine(f"{value!r} is not a timestamp")
    if isinstance(value, int | float):
        if abs(value) >= 1 << 63:
            raise InvalidLine(f"{value!r} is not a timestamp: milliseconds since 1970 have 64 bits")
        return int(value)
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1000)
    except ValueError as error:
        raise InvalidLine(f"{value!r} is not a timestamp; expected ISO 8601 or milliseconds since 1970") from error
