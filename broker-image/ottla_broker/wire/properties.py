"""Java's properties format, as Kafka reads server.properties (java.util.Properties.load), with the line each key stands on.

Comments start with # or !. A key ends at the first unescaped =, : or blank. A backslash at a line's end joins the next line, whose
leading blanks are dropped. Escapes: \\t \\n \\r \\f \\uXXXX; before any other character the backslash is dropped. The file is taken as
UTF-8. Unlike Java, a last line of nothing but a backslash is no empty key.
"""

from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """`line`: the number, from 1, of the line the key stands on."""

    key: str
    value: str
    line: int


class InvalidEscape(ValueError):
    """A \\u without four hexadecimal digits."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(
            f"line {line}: {text!r} is no escape; \\u needs four hexadecimal digits (a backslash is written \\\\)"
        )
        self.line = line


def parse_properties(text: str) -> list[Property]:
    """All keys in the order of the file, repeated ones too. Raises BadEscape."""
    return [_property(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    started, whole = 0, ""
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = line.lstrip(_BLANKS)
        if not started and (not line or line[0] in "#!"):
            continue
        started = started or number
        if _ends_in_backslash(line):
            whole += line[:-1]
            started = started if whole else 0  # nothing but backslashes so far: the next line may still be a comment
            continue
        if whole or line:
            yield started, whole + line
        started, whole = 0, ""
    if started and whole:
        yield started, whole


def _ends_in_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _property(line: str, number: int) -> Property:
    end = at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    end = min(at, len(line))
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return Property(_unescape(line[:end], number), _unescape(rest, number), number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            found.append(text[at])
            at += 1
            continue
        escaped = text[at + 1 : at + 2]
        if escaped == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise InvalidEscape(number, text[at : at + 6])
            found.append(chr(int(digits, 16)))
            at += 6
        else:
            found.append(_ESCAPES.get(escaped, escaped))
            at += 2
    # \u escapes are UTF-16 code units: a pair of surrogates is one character.
    return "".join(found).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
