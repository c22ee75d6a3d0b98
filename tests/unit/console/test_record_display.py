"""Keys and values as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.record_display import DISPLAY_FORMS, DisplayForm, display_bytes, display_record, hex_lines
from ottla_broker.wire.records import Record
from tests.unit.console.record_strategies import RECORDS


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b'{"b":1.50,\n"a":[]}', "json", '{"b": 1.50, "a": []}'),
        (b'{"a":"%s"}' % (b"x" * 100), "json", '{\n  "a": "%s"\n}' % ("x" * 100)),
        (b"{no json", "text", "{no json"),
        (b"12", "text", "12"),
        (b"\x00\x01A", "binary", f"00000000  {'00 01 41':<47}  ..A"),
        ("\u202egnp.exe".encode(), "text", "\\u202egnp.exe"),
        ('{"a":"\u202egnp.exe"}'.encode(), "json", '{"a": "\\u202egnp.exe"}'),
    ],
)
def test_bytes_are_shown_as_json_text_or_hexadecimal(data: bytes | None, kind: str, text: str) -> None:
    shown = display_bytes(data, "auto", 1000)
    assert (shown.kind, shown.text) == (kind, text)


def test_long_values_are_cut_and_say_so() -> None:
    shown = display_bytes(b"x" * 5000, "auto", 100)
    assert (len(shown.text), shown.size, shown.is_cut) == (100, 5000, True)


def test_json_that_nests_deeper_than_a_parser_reads_is_text() -> None:
    assert display_bytes(b"[" * 100_000 + b"]" * 100_000, "auto", 100).kind == "text"


@given(RECORDS, st.sampled_from(DISPLAY_FORMS))
def test_any_record_is_shown_without_control_characters(record: Record, form: DisplayForm) -> None:
    shown = display_record(0, record, form, 500)
    for part in (shown.key, shown.value, *(value for _, value in shown.headers)):
        assert all(one.isprintable() or one in "\t\r\n" for one in part.text)
        assert len(part.text) <= 2000


@given(st.binary(max_size=200))
def test_hexadecimal_has_every_byte(data: bytes) -> None:
    decoded = b"".join(bytes.fromhex(line[10:57]) for line in hex_lines(data).splitlines())
    assert decoded == data
