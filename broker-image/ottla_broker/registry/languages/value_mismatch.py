"""Why a value cannot be written by a schema."""

import json
from typing import Any, Final

MAX_SHOWN: Final = 60
_NOTHING: Final = object()


class ValueMismatch(Exception):
    """A sentence that names the field and its allowed values."""

    @classmethod
    def at(cls, path: str, expected: str, value: Any = _NOTHING) -> "ValueMismatch":
        """`path`: of the field, such as `lines[0].count`; empty for the whole value."""
        where = f"field {path}: " if path else ""
        shown = "" if value is _NOTHING else f", not {shorten(value)}"
        # JSON may have unpaired surrogates, which no message can.
        return cls(f"{where}expected {expected}{shown}".encode(errors="replace").decode())


def shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
