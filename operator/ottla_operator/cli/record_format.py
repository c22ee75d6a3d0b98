"""Lines of text as records: what `ottla produce` reads, and what `ottla consume -o json` writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from ottla_broker.wire.records import Record

NO_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError)


class InvalidLine(Exception):
    """A line that is no record of the asked form."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """A record and where it is to go; without a partition, its key decides."""

    topic: str
    partition: int | None
    record: Record


class Line(msgspec.Struct):
    """A record as a line of JSON. `timestamp`: milliseconds since the epoch, or ISO 8601. Keys and values that are JSON text are taken without the
    quotes; null is none at all; anything else is taken as the JSON that it is."""

    topic: str | None = None
    key: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()
    partition: int | None = None
    timestamp: int | str | None = None
    headers: dict[str, str | None] = {}


Reader = Callable[[bytes, int], Addressed]
"""From a line without its end and the time now in ms to a record. Raises BadLine."""


def json_record_reader(topic: str | None) -> Reader:
    """Lines are records with topic, key, value and so on. `topic`: for lines that name none."""
    decode = msgspec.json.Decoder(Line).decode

    def read(text: bytes, now_ms: int) -> Addressed:
        try:
            line = decode(text)
            key, value = _bytes(line.key), _bytes(line.value)
        except NO_JSON as error:
            raise InvalidLine(str(error)) from error
        if (to := line.topic or topic) is None:
            raise InvalidLine("it names no topic, and none is given on the command line")
        headers = tuple((name, None if it is None else it.encode()) for name, it in line.headers.items())
        at = now_ms if line.timestamp is None else _time_ms(line.timestamp)
        return Addressed(to, line.partition, Record(at, key, value, headers))

    return read


def value_reader(
    topic: str,
    *,
    partition: int | None = None,
    key_separator: str | None = None,
    key_fields: Sequence[str] = (),
    timestamp_field: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> Reader:
    """Lines are values. `key_separator`: what comes before it is the key. `key_fields`, `timestamp_field`: lines are JSON objects, and key or
    timestamp are taken from these fields of theirs."""
    separator = key_separator.encode() if key_separator is not None else None
    fixed = tuple((key, value.encode()) for key, value in headers)

    def read(text: bytes, now_ms: int) -> Addressed:
        key, value, at = None, text, now_ms
        if separator is not None:
            key, found, value = text.partition(separator)
            if not found:
                raise InvalidLine(f"there is no {key_separator!r} between key and value")
        if key_fields or timestamp_field:
            fields = _object(text)
            if key_fields:
                key = "|".join(_text(_field(fields, it)) for it in key_fields).encode()
            if timestamp_field:
                at = _time_ms(_field(fields, timestamp_field))
        return Addressed(topic, partition, Record(at, key, value, fixed))

    return read


def record_to_json(topic: str, partition: int, record: Record) -> str:
    """One line, which `ottla produce --lines` takes again. Bytes that are no text are shown with replacement characters."""
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": text_of(record.key),
        "value": _json_or_text(record.value),
    }
    if record.headers:
        shown["headers"] = {key: text_of(value) for key, value in record.headers}
    return json.dumps(shown, ensure_ascii=False)


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _json_or_text(data: bytes | None) -> Any:
    """An object or list as such; everything else, numbers too, as text, so that reading it again gives the same bytes."""
    if data is None:
        return None
    if data[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except ValueError:
            pass
    return text_of(data)


def _bytes(raw: msgspec.Raw) -> bytes | None:
    """Empty: the line does not have it."""
    data = bytes(raw)
    if data[:1] == b'"':
        return msgspec.json.decode(data, type=str).encode()
    return None if data in (b"", b"null") else data


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except NO_JSON as error:
        raise InvalidLine(str(error)) from error
    if not isinstance(found, dict):
        raise InvalidLine("it is no JSON object, so it has no fields")
    return found


def _field(fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise InvalidLine(f"it has no field {name!r}; it has {', '.join(fields)}")
    return fields[name]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _time_ms(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidLine(f"{value!r} is no time")
    if isinstance(value, int | float):
        if abs(value) >= 1 << 63:
            raise InvalidLine(f"{value!r} is no time: milliseconds since 1970 have 64 bits")
        return int(value)
    try:
        return int(datetime.fromisoformat(value).timestamp() * 1000)
    except ValueError as error:
        raise InvalidLine(f"{value!r} is no time; write ISO 8601 or milliseconds since 1970") from error
