"""Keys and values of records as text: JSON, text, or hexadecimal for what is neither.

Anyone may have written a record, so the results are text, which templates escape, and never markup.
"""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from ottla_broker.console.schema_framing import NOT_DECODED, DecodedBytes, DecodedRecord
from ottla_broker.wire.records import Record

MAX_SHOWN: Final = 2000
"""Characters of a value in a table of records; a record's own page shows more."""
MAX_SHOWN_ALONE: Final = 200_000
MAX_JSON_LINE: Final = 100
"""Characters of JSON that are shown on one line."""
MAX_HEX_BYTES: Final = 4096
BYTES_PER_LINE: Final = 16

DisplayKind = Literal["null", "json", "text", "binary"]
DisplayForm = Literal["auto", "text", "hex"]
"""How users want to see keys and values."""
DISPLAY_FORMS: Final = ("auto", "text", "hex")


@dataclass(frozen=True, slots=True)
class DisplayedBytes:
    """A key or value, or a header's value. `size`: in bytes. `is_cut`: `text` is only the
    beginning. `schema`: the type and id of the schema that has decoded it, or empty.
    """

    kind: DisplayKind
    text: str
    size: int
    is_cut: bool = False
    schema: str = ""


@dataclass(frozen=True, slots=True)
class DisplayedRecord:
    partition: int
    offset: int
    timestamp_ms: int
    key: DisplayedBytes
    value: DisplayedBytes
    headers: tuple[tuple[str, DisplayedBytes], ...]


def display_record(
    partition: int, record: Record, form: DisplayForm, limit: int = MAX_SHOWN, decoded: DecodedRecord = NOT_DECODED
) -> DisplayedRecord:
    return DisplayedRecord(
        partition,
        record.offset,
        record.timestamp_ms,
        display_bytes(record.key, form, limit, decoded.key),
        display_bytes(record.value, form, limit, decoded.value),
        tuple((escape_unprintable(name), display_bytes(value, form, limit)) for name, value in record.headers),
    )


def display_bytes(
    data: bytes | None, form: DisplayForm, limit: int, decoded: DecodedBytes | None = None
) -> DisplayedBytes:
    """At most `limit` characters. With the form "auto", what a schema has decoded, and JSON objects
    and lists, are formatted; other UTF-8 is text, and the rest hexadecimal.
    """
    if data is None:
        return DisplayedBytes("null", "null", 0)
    if form == "auto" and decoded is not None and (encoded := encode_as_json(decoded)) is not None:
        decoded_text = escape_unprintable(format_json(encoded) or encoded.decode())
        is_cut = len(decoded_text) > limit
        return DisplayedBytes("json", decoded_text[:limit], len(data), is_cut, name_schema(decoded))
    if form == "hex":
        return _show_hex(data, limit)
    text = decode_text(data)
    if text is None:
        return (
            _show_hex(data, limit)
            if form == "auto"
            else _show_text("text", escape_unprintable(data.decode(errors="replace")), data, limit)
        )
    if form == "auto" and text.lstrip()[:1] in ("{", "[") and (formatted := format_json(data)) is not None:
        return _show_text("json", escape_unprintable(formatted), data, limit)
    return _show_text("text", escape_unprintable(text), data, limit)


def encode_as_json(decoded: DecodedBytes) -> bytes | None:
    """The decoded value as JSON, with bytes in base64. None for values that JSON does not have,
    such as unpaired surrogates.
    """
    try:
        return msgspec.json.encode(decoded.value)
    except (TypeError, ValueError, RecursionError):
        return None


def name_schema(decoded: DecodedBytes) -> str:
    return f"{decoded.schema_type}, schema {decoded.schema_id}"


def decode_text(data: bytes) -> str | None:
    """The bytes as text. None if they are not UTF-8, or have a character below U+0020 other than
    tab, line feed and carriage return.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if any(ord(one) < 32 and one not in "\t\r\n" for one in text) else text


def format_json(data: bytes) -> str | None:
    """JSON on one line if it is short, else indented; None if the bytes are not JSON. Numbers keep
    their digits, and keys their order.
    """
    try:
        msgspec.json.decode(data)
        one_line = msgspec.json.format(data, indent=0).decode()
        return one_line if len(one_line) <= MAX_JSON_LINE else msgspec.json.format(data, indent=2).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def escape_unprintable(text: str) -> str:
    """The text with escapes for characters that are not printable or would change the direction of
    the text around them.
    """
    return "".join(one if one.isprintable() or one in "\t\r\n" else f"\\u{ord(one):04x}" for one in text)


def hex_lines(data: bytes) -> str:
    """A hex dump: offset, bytes and printable ASCII, with 16 bytes per line."""
    lines = []
    for start in range(0, len(data), BYTES_PER_LINE):
        part = data[start : start + BYTES_PER_LINE]
        text = "".join(chr(one) if 32 <= one < 127 else "." for one in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{3 * BYTES_PER_LINE - 1}}  {text}")
    return "\n".join(lines)


def _show_hex(data: bytes, limit: int) -> DisplayedBytes:
    shown = min(MAX_HEX_BYTES, max(BYTES_PER_LINE, limit // 5))
    return DisplayedBytes("binary", hex_lines(data[:shown]), len(data), len(data) > shown)


def _show_text(kind: DisplayKind, text: str, data: bytes, limit: int) -> DisplayedBytes:
    return DisplayedBytes(kind, text[:limit], len(data), len(text) > limit)
