"""Records from the fields of a form."""

import pytest

from ottla_broker.console.record_form import RecordFormError, parse_record
from ottla_broker.wire.records import Record


@pytest.mark.parametrize(
    ("form", "key", "value"),
    [
        ({}, None, b""),
        ({"key": "a", "value": "line\r\nnext"}, b"a", b"line\nnext"),
        ({"key": "", "key-form": "hexadecimal", "value-form": "null"}, b"", None),
        (
            {"key": "00 ff", "key-form": "hexadecimal", "value": "AP8=\r\n", "value-form": "base64"},
            b"\0\xff",
            b"\0\xff",
        ),
    ],
)
def test_keys_and_values_are_decoded_from_the_chosen_form(
    form: dict[str, str], key: bytes | None, value: bytes | None
) -> None:
    assert parse_record(form, 5, {}) == Record(5, key, value)


def test_each_line_is_a_header() -> None:
    record = parse_record({"headers": "a: 1\r\n\r\n a :x: y\r\nempty:"}, 0, {})
    assert record.headers == (("a", b"1"), ("a", b"x: y"), ("empty", b""))


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"key": "0", "key-form": "hexadecimal"}, "key: expected hexadecimal digits, two for each byte"),
        ({"value": "%", "value-form": "base64"}, "value: expected base64"),
        ({"value": "x", "value-form": "null"}, "value: null has no text; remove the text or choose another form"),
        ({"value-form": "avro"}, "value: the form 'avro' is none of text, hexadecimal, base64, null"),
        ({"headers": ": x"}, "headers: expected lines of the form name: value, not ': x'"),
    ],
)
def test_invalid_field_is_named(form: dict[str, str], problem: str) -> None:
    with pytest.raises(RecordFormError) as refused:
        parse_record(form, 0, {})
    assert str(refused.value) == problem
