"""Value types of settings: any text is parsed to a value or rejected with ValueError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting
from ottla_broker.config.addresses import HttpAddress, Listener, parse_listeners
from ottla_broker.config.value_types import (
    MAX_DOUBLE,
    MAX_INT32,
    MAX_INT64,
    ValueType,
    boolean,
    double,
    fixed,
    integer,
    list_of,
    long,
    one_of,
    plain_text,
    short,
)

SETTINGS: list[Setting[object]] = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]


@given(st.sampled_from(SETTINGS), st.one_of(st.text(max_size=30), st.integers().map(str), st.floats().map(str)))
def test_any_text_is_rejected_or_parsed_to_a_value_with_an_equal_text(setting: Setting[object], text: str) -> None:
    try:
        value = setting.type.parse(text)
    except ValueError:
        return
    formatted = setting.type.text(value)
    if formatted:  # an empty text means "not set" where a value cannot be empty
        assert setting.type.parse(formatted) == value


@given(st.integers(-(2**70), 2**70))
def test_integers_have_the_ranges_of_java(number: int) -> None:
    for kind, bits in ((short(), 16), (integer(), 32), (long(), 64)):
        fits = -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)
        if fits:
            assert kind.parse(f" {number} ") == number
        else:
            with pytest.raises(ValueError):
                kind.parse(str(number))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-100, 100), st.integers(0, 100))
def test_integers_out_of_bounds_are_rejected(number: int, low: int, width: int) -> None:
    kind = integer(low, low + width, also=-500)
    allowed = low <= number <= low + width or number == -500
    if allowed:
        assert kind.parse(str(number)) == number
    else:
        with pytest.raises(ValueError):
            kind.parse(str(number))


@pytest.mark.parametrize("text", ["", "1_000", "0x10", "1.0", "１", "--1", "+", "true", "9" * 5000])
def test_text_that_is_no_integer_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        long().parse(text)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-Infinity", "1_0", "x", "1.5", "-0.1"])
def test_text_that_is_no_ratio_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        double(0, 1).parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.000123, "1.23E-4"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-2.5e9, "-2.5E9"),
        (1e22, "1.0E22"),
        (MAX_DOUBLE, "1.7976931348623157E308"),
        (5e-324, "5.0E-324"),
        (True, "true"),
        (("a", "b"), "a,b"),
        (MAX_INT64, "9223372036854775807"),
    ],
)
def test_values_are_formatted_as_java_does(value: object, text: str) -> None:
    assert plain_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_formatted_double_is_parsed_to_the_same_value(value: float) -> None:
    assert float(plain_text(value)) == value


def test_booleans_choices_and_lists_are_parsed() -> None:
    assert boolean().parse(" TRUE ") is True
    assert one_of("a", "B").parse("B") == "B"
    assert one_of("up", "down", any_case=True).parse("UP") == "up"
    assert list_of("a", "b").parse(" a , b") == ("a", "b")
    assert list_of("a", "b").parse("") == ()
    kind: ValueType[bool]
    for kind, wrong in ((boolean(), "yes"), (fixed(boolean(), False, "why"), "true")):
        with pytest.raises(ValueError):
            kind.parse(wrong)


def test_listeners_are_parsed() -> None:
    assert parse_listeners("PLAINTEXT://:9092, int-1://[::1]:0,B://h.example:65535") == (
        Listener("PLAINTEXT", "", 9092),
        Listener("INT-1", "::1", 0),
        Listener("B", "h.example", 65535),
    )
    assert str(Listener("A", "::1", 1)) == "A://[::1]:1"
    assert str(HttpAddress("::1", 80)) == "[::1]:80"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "A://",
        "A://h",
        "A://h:x",
        "A://h:65536",
        "A://::1:9",
        "A://a b:1",
        "A://:1,A://:2",
        "://h:1",
        "A://[x]:1",
    ],
)
def test_invalid_listeners_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse_listeners(text)


def test_largest_32_bit_integer_is_in_range() -> None:
    assert integer().parse(str(MAX_INT32)) == MAX_INT32
