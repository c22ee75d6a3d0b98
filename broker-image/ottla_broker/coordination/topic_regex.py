"""Regular expressions that members of consumer groups subscribe with (KIP-848).

RE2 evaluates them in time linear in the length of a topic's name, so that no expression can stall
the broker. It is the syntax that Kafka's coordinator has, too. The library is imported when the
first expression arrives: it takes 4 MB of memory.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from ottla_broker.wire.errors import ErrorCode, KafkaError

MAX_PROGRAM_BYTES: Final = 1 << 20
"""Bounds the memory of one compiled expression; a larger one is invalid."""


def check_regular_expression(expression: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    _compile(expression)


def matching_topics(expression: str, names: Iterable[str], may_describe: Callable[[str], bool]) -> frozenset[str]:
    """The topics whose whole name matches and that the subscriber may describe. Raises
    INVALID_REGULAR_EXPRESSION."""
    matches = _compile(expression).fullmatch
    return frozenset(name for name in names if matches(name) is not None and may_describe(name))


@lru_cache(maxsize=64)
def _compile(expression: str) -> Any:
    re2 = import_module("re2")
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options=options)
    except re2.error as reason:
        text = reason.args[0] if reason.args else reason
        text = text.decode() if isinstance(text, bytes) else str(text)
        message = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {text}."
        raise KafkaError(ErrorCode.invalid_regular_expression, message) from reason
