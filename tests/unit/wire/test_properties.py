"""Java's properties format: keys, values and line numbers, and that any text can be written in
it.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla_broker.wire.properties import InvalidEscape, Property, parse_properties

CHARACTERS = st.characters(exclude_categories=["Cs"])


def escaped(text: str, *, key: bool) -> str:
    """The text as java.util.Properties.store writes it to a Writer. To an OutputStream it would
    write some characters as \\uXXXX.
    """
    written = ""
    for at, character in enumerate(text):
        if character == " ":
            written += "\\ " if key or at == 0 else " "
        elif character in "\t\n\r\f":
            written += {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[character]
        elif character in "\\=:#!":
            written += "\\" + character
        else:
            written += character
    return written


@given(
    st.dictionaries(st.text(CHARACTERS, min_size=1), st.text(CHARACTERS)),
    st.sampled_from(["=", ":", " ", " = ", "\t:"]),
)
def test_written_properties_are_read_back(pairs: dict[str, str], separator: str) -> None:
    lines = [escaped(key, key=True) + separator + escaped(value, key=False) for key, value in pairs.items()]
    assert [(found.key, found.value) for found in parse_properties("\n".join(lines))] == list(pairs.items())


@given(st.text(st.sampled_from("ab=: \t\\\n\r#!u0f")))
@example("\\")
@example("a\\")
@example("\\\n\n=b")
def test_arbitrary_text_is_read_or_rejected_with_its_line(text: str) -> None:
    try:
        found = parse_properties(text)
    except InvalidEscape as refused:
        assert 1 <= refused.line <= text.count("\n") + text.count("\r") + 1
    else:
        assert [one.line for one in found] == sorted({one.line for one in found})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1", 1)]),
        ("# note\n! note\n\n  a = 1  ", [("a", "1  ", 4)]),
        ("a:1\r\nb 2\rc", [("a", "1", 1), ("b", "2", 2), ("c", "", 3)]),
        ("list=x,\\\n    y,\\\n    z\nnext=1", [("list", "x,y,z", 1), ("next", "1", 4)]),
        ("a=1\\\n# no comment here", [("a", "1# no comment here", 1)]),
        ("path=C:\\\\data\\\\", [("path", "C:\\data\\", 1)]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e", 1)]),
        ("a = = b", [("a", "= b", 1)]),
        ("u=\\u00e9\\ud83d\\ude00\\n", [("u", "é😀\n", 1)]),
        ("a=\\q\\'", [("a", "q'", 1)]),
        ("=only a value", [("", "only a value", 1)]),
        ("# comment ends with \\\na=1", [("a", "1", 2)]),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert parse_properties(text) == [Property(*one) for one in expected]


def test_invalid_escape_is_reported_with_its_line() -> None:
    with pytest.raises(InvalidEscape, match=r"line 2: .*\\\\u12G4"):
        parse_properties("a=1\nb=\\u12G4")
