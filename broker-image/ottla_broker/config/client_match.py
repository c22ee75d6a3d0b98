"""Patterns that select the clients of a client-metrics resource: its config `match` (KIP-714).

An entry is `PARAMETER=REGULAR EXPRESSION`. A client is selected if the whole value of each named
parameter matches. RE2 evaluates the expressions in linear time; it is imported with the first one.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

CLIENT_MATCH_PARAMETERS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
MAX_PROGRAM_BYTES: Final = 1 << 20


def is_client_match(entry: str) -> bool:
    parameter, equals, expression = entry.partition("=")
    # A second equals sign is illegal in Kafka, too.
    if not equals or "=" in expression or parameter.strip() not in CLIENT_MATCH_PARAMETERS:
        return False
    return _compile(expression.strip()) is not None


def matches_client(entries: Sequence[str], client: Mapping[str, str | None]) -> bool:
    """Whether the client, described by its parameters, matches all entries. Of several entries with
    one parameter the last counts, as in Kafka."""
    wanted = {parameter.strip(): text.strip() for parameter, _, text in (entry.partition("=") for entry in entries)}
    return all(_matches(text, client.get(parameter)) for parameter, text in wanted.items())


def _matches(expression: str, value: str | None) -> bool:
    compiled = _compile(expression)
    return value is not None and compiled is not None and compiled.fullmatch(value) is not None


@lru_cache(maxsize=64)
def _compile(expression: str) -> Any:
    """None for an invalid expression."""
    re2 = import_module("re2")
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options=options)
    except re2.error:
        return None
