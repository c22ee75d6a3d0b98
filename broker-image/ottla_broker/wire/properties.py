"""Java's properties format, as Kafka reads server.properties (java.util.Properties.load), with line
numbers.

Comments start with # or !. A key ends at the first unescaped =, : or blank. A backslash at a line's
end joins the next line, whose leading blanks are dropped. Escapes: \\t \\n \\r \\f \\uXXXX; before
any other character the backslash is dropped. Files are UTF-8. Unlike in Java, a last line that is
only a backslash is not an empty key.
"""

from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """`line` is the number of the key's line, from 1."""

    key: str
    value: str
    line: int


class InvalidEscape(ValueError):
    """A \\u without four hexadecimal digits."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(
            f"line {line}: invalid escape {text!r}; \\u needs four hexadecimal digits (write a backslash as \\\\)"
        )
        self.line = line


def parse_properties(text: str) -> list[Property]:
    """All keys in the order of the file, with repeated ones. Raises InvalidEscape."""
    return [_parse_line(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields each line with the lines that continue it, and the number of its first line."""
    first, joined = 0, ""  # first line's number, 0 before a logical line begins
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = line.lstrip(_BLANKS)
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        if _ends_in_backslash(line):
            joined += line[:-1]
            first = first if joined else 0  # only backslashes so far: the next line may be a comment
            continue
        if joined or line:
            yield first, joined + line
        first, joined = 0, ""
    if first and joined:
        yield first, joined


def _ends_in_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _parse_line(line: str, number: int) -> Property:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    value = line[at:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return Property(_unescape(line[:at], number), _unescape(value, number), number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        escaped = text[at + 1 : at + 2]
        if escaped == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise InvalidEscape(number, text[at : at + 6])
            parts.append(chr(int(digits, 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
            at += 2
    # \u escapes are UTF-16 code units: a surrogate pair is one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
