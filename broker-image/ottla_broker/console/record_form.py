"""A record from the fields of a form. Pure."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from ottla_broker.wire.records import Headers, Record

BYTE_FORMS: Final = ("text", "hexadecimal", "base64", "null")
"""How a user may write the bytes of a key or value."""
SCHEMA_FORM: Final = "JSON by schema"
"""Another way: JSON that a schema of the registry encodes."""


class RecordFormError(ValueError):
    """A field is invalid; the message says which and why."""


def parse_record(form: Mapping[str, str], now_ms: int, encoded: Mapping[str, bytes]) -> Record:
    """The record of the fields `key`, `value`, `key-form`, `value-form` and `headers`. An empty key
    field in the form `text` means no key; other empty fields mean zero bytes. `encoded`: the key or
    value that a schema has encoded, by field. Raises RecordFormError.
    """

    def read(field: str) -> bytes | None:
        if field in encoded:
            return encoded[field]
        return parse_bytes(field, form.get(f"{field}-form", "text"), form.get(field, ""))

    key = read("key")
    if key == b"" and form.get("key-form", "text") == "text":
        key = None
    return Record(now_ms, key, read("value"), parse_headers(form.get("headers", "")))


def parse_bytes(field: str, form: str, text: str) -> bytes | None:
    """The bytes that `text` means in the form, one of BYTE_FORMS; None for `null`. Line breaks,
    which browsers send as CR LF, become LF. Raises RecordFormError.
    """
    match form:
        case "text":
            return text.replace("\r\n", "\n").encode()
        case "hexadecimal":
            try:
                return bytes.fromhex(text)
            except ValueError:
                raise RecordFormError(f"{field}: expected hexadecimal digits, two for each byte") from None
        case "base64":
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except (binascii.Error, ValueError):
                raise RecordFormError(f"{field}: expected base64") from None
        case "null":
            if text.strip():
                raise RecordFormError(f"{field}: null has no text; remove the text or choose another form")
            return None
        case _:
            raise RecordFormError(f"{field}: the form {form!r} is none of {', '.join(BYTE_FORMS)}")


def parse_headers(text: str) -> Headers:
    """Headers from lines `name: value`; a name may occur several times. Raises RecordFormError."""
    headers = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not (colon and name.strip()):
            raise RecordFormError(f"headers: expected lines of the form name: value, not {line[:40]!r}")
        headers.append((name.strip(), value.strip().encode()))
    return tuple(headers)
