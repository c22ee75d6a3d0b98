"""Why a value cannot be written by a schema."""

import json
from typing import Any, Final

MAX_SHOWN: Final = 60
_NOTHING: Final = object()


class ValueMismatch(Exception):
    """A value cannot be written by a schema. The message names the field and what it can hold."""

    @classmethod
    def at(cls, path: str, expected: str, value: Any = _NOTHING) -> "ValueMismatch":
        """`path`: that of the field, such as `lines[0].count`; empty for the whole value.
        `expected`: a part of a sentence. `value`: the value that does not fit.
        """
        where = f"field {path}: " if path else ""
        shown = "" if value is _NOTHING else f", not {shorten(value)}"
        # JSON may have unpaired surrogates, which no message can have.
        return cls(f"{where}expected {expected}{shown}".encode(errors="replace").decode())


def shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
