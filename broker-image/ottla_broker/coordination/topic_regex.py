"""Regular expressions that members of consumer groups subscribe with (KIP-848)."""

from collections.abc import Callable, Iterable
from typing import Any

from ottla_broker.config.regular_expressions import compile_expression
from ottla_broker.wire.errors import ErrorCode, KafkaError


def check_regular_expression(expression: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    _compile(expression)


def matching_topics(expression: str, names: Iterable[str], may_describe: Callable[[str], bool]) -> frozenset[str]:
    """The topics whose whole name matches and that the subscriber may describe. Raises
    INVALID_REGULAR_EXPRESSION."""
    matches = _compile(expression).fullmatch
    return frozenset(name for name in names if matches(name) is not None and may_describe(name))


def _compile(expression: str) -> Any:
    try:
        return compile_expression(expression)
    except ValueError as reason:
        message = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}."
        raise KafkaError(ErrorCode.invalid_regular_expression, message) from reason
