"""Types of settings: how a text is parsed and printed, and the phrase that says which texts are
allowed.

Integers, booleans, lists and the like are written as for Kafka's `ConfigDef`:
https://kafka.apache.org/documentation/#configuration. A parser raises ValueError; the caller adds
setting, value and place.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Text = TypeVar("Text", bound=str)

MAX_INT16 = 2**15 - 1
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308


class ConfigType(IntEnum):
    """The codes of DescribeConfigs' `config_type`."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


def plain_text(value: object) -> str:
    """A parsed value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value)


class IntegerRange(NamedTuple):
    """Integers from `low` to `high`, and the one integer `also` unless it is None."""

    low: int
    high: int
    also: int | None = None


class ValueType(NamedTuple, Generic[T_co]):
    """`allowed` completes the phrase "allowed: …". `parse` raises ValueError for any other text;
    its message, if it has one, says what exactly is wrong. `range`, `words`: the allowed values as
    data, for the schema of the Cluster resource; None where only `parse` knows them."""

    code: ConfigType
    allowed: str
    parse: Callable[[str], T_co]
    text: Callable[[object], str] = plain_text
    range: IntegerRange | None = None
    words: tuple[str, ...] | None = None


def integer(at_least: int | None = None, at_most: int | None = None, *, also: int | None = None) -> ValueType[int]:
    return _integer_type(ConfigType.INT, MAX_INT32, at_least, at_most, also)


def integer_of(*values: int) -> ValueType[int]:
    """One of these integers."""
    by_text = {str(value): value for value in values}

    def parse(text: str) -> int:
        value = by_text.get(text.strip())
        if value is None:
            raise ValueError
        return value

    return ValueType(ConfigType.INT, _join_choices([*by_text]), parse)


def long(at_least: int | None = None, *, also: int | None = None) -> ValueType[int]:
    return _integer_type(ConfigType.LONG, MAX_INT64, at_least, None, also)


def short(at_least: int | None = None) -> ValueType[int]:
    return _integer_type(ConfigType.SHORT, MAX_INT16, at_least, None, None)


def double(at_least: float | None = None, at_most: float | None = None) -> ValueType[float]:
    allowed = f"a number{_bounds(at_least, at_most)}"

    def parse(text: str) -> float:
        text = text.strip()
        if "_" in text or not text.isascii() or text.lower().lstrip("+-") in {"nan", "inf", "infinity"}:
            raise ValueError
        value = float(text)
        if (at_least is not None and value < at_least) or (at_most is not None and value > at_most):
            raise ValueError
        return value

    return ValueType(ConfigType.DOUBLE, allowed, parse)


def boolean() -> ValueType[bool]:
    def parse(text: str) -> bool:
        lowered = text.strip().lower()
        if lowered not in {"true", "false"}:
            raise ValueError
        return lowered == "true"

    return ValueType(ConfigType.BOOLEAN, "true or false", parse, words=("true", "false"))


def string(allowed: str = "any text", *, empty: bool = True) -> ValueType[str]:
    """A text without blanks at its ends. `empty`: whether it may be empty."""

    def parse(text: str) -> str:
        text = text.strip()
        if not (text or empty):
            raise ValueError
        return text

    return ValueType(ConfigType.STRING, allowed, parse)


def secret(allowed: str = "any text") -> ValueType[str]:
    """Kept as written: blanks at the ends of a secret may count."""
    return ValueType(ConfigType.PASSWORD, allowed, str)


def one_of(*values: Text, any_case: bool = False) -> ValueType[Text]:
    """One of these texts. `any_case`: in upper or lower case."""
    by_text = {value.lower() if any_case else str(value): value for value in values}

    def parse(text: str) -> Text:
        text = text.strip()
        value = by_text.get(text.lower() if any_case else text)
        if value is None:
            raise ValueError
        return value

    return ValueType(ConfigType.STRING, _join_choices(values), parse, words=None if any_case else values)


def list_of(*values: str, allowed: str = "", check: Callable[[str], bool] | None = None) -> ValueType[tuple[str, ...]]:
    """A list whose entries are among `values` (any when none are given) and pass `check`."""

    def parse(text: str) -> tuple[str, ...]:
        entries = split_list(text)
        for entry in entries:
            if (values and entry not in values) or (check is not None and not check(entry)):
                raise ValueError(f"{entry!r} is unknown" if values else f"{entry!r} is malformed")
        return entries

    return ValueType(ConfigType.LIST, allowed or f"a comma-separated list of {_join_choices(values, 'and')}", parse)


def fixed(general: ValueType[T], value: T, why: str) -> ValueType[T]:
    """One value of a more general type, for a setting of Kafka's that clients and tools send.
    `why`: the reason why there is no other value.
    """

    def parse(text: str) -> T:
        if general.parse(text) != value:
            raise ValueError(why)
        return value

    return ValueType(general.code, f"{general.text(value)} only", parse, words=(general.text(value),))


def parsed(
    parse: Callable[[str], T],
    allowed: str,
    text: Callable[[object], str] = plain_text,
    *,
    code: ConfigType = ConfigType.STRING,
) -> ValueType[T]:
    """A type with a syntax of its own."""
    return ValueType(code, allowed, parse, text)


def split_list(text: str) -> tuple[str, ...]:
    text = text.strip()
    return tuple(entry.strip() for entry in text.split(",")) if text else ()


def _integer_type(
    code: Literal[ConfigType.INT, ConfigType.LONG, ConfigType.SHORT],
    limit: int,
    at_least: int | None,
    at_most: int | None,
    also: int | None,
) -> ValueType[int]:
    low = -limit - 1 if at_least is None else at_least
    high = limit if at_most is None else at_most
    noun = {
        ConfigType.INT: "a 32-bit integer",
        ConfigType.LONG: "a 64-bit integer",
        ConfigType.SHORT: "a 16-bit integer",
    }[code]
    allowed = f"{noun}{_bounds(at_least, at_most)}{'' if also is None else f', or {also}'}"

    def parse(text: str) -> int:
        text = text.strip()
        digits = text[1:] if text[:1] in {"+", "-"} else text
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 40:
            raise ValueError
        value = int(text)
        if not low <= value <= high and value != also:
            raise ValueError
        return value

    return ValueType(code, allowed, parse, range=IntegerRange(low, high, also))


def _bounds(at_least: float | None, at_most: float | None) -> str:
    if at_least is not None and at_most is not None:
        return f" from {at_least} to {at_most}"
    if at_least is not None:
        return f", at least {at_least}"
    return "" if at_most is None else f", at most {at_most}"


def _join_choices(values: Sequence[str], word: str = "or") -> str:
    names = [value or "nothing" for value in values]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def _double_text(value: float) -> str:
    """Formats a double as Java does: always with a fraction, with an exponent below 1e-3 and from
    1e7 on.
    """
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, fraction = mantissa.partition(".")
        sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        if digits.strip("0"):
            rest = (digits[1:] + fraction).rstrip("0") or "0"
            return f"{sign}{digits[0]}.{rest}E{len(digits) - 1}"
        shift = len(fraction) - len(fraction.lstrip("0")) + 1
        kept = fraction.lstrip("0")
        return f"{sign}{kept[0]}.{kept[1:] or '0'}E-{shift}"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
