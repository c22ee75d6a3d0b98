"""Patterns that select the clients of a client-metrics resource: its config `match` (KIP-714).

An entry is `PARAMETER=REGULAR EXPRESSION`. A client is selected if the whole value of each named
parameter matches.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla_broker.config.regular_expressions import compile_expression

CLIENT_MATCH_PARAMETERS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def is_valid_match_entry(entry: str) -> bool:
    """True if the entry has one of CLIENT_MATCH_PARAMETERS and a valid regular expression."""
    parameter, equals, expression = entry.partition("=")
    # A second equals sign is illegal in Kafka, too.
    if not equals or "=" in expression or parameter.strip() not in CLIENT_MATCH_PARAMETERS:
        return False
    return _compile(expression.strip()) is not None


def matches_client(entries: Sequence[str], client: Mapping[str, str | None]) -> bool:
    """True if the client, described by its parameters (None: unknown), matches all entries. Of
    several entries with one parameter the last counts, as in Kafka."""
    wanted = {parameter.strip(): text.strip() for parameter, _, text in (entry.partition("=") for entry in entries)}
    return all(_matches(text, client.get(parameter)) for parameter, text in wanted.items())


def _matches(expression: str, value: str | None) -> bool:
    compiled = _compile(expression)
    return value is not None and compiled is not None and compiled.fullmatch(value) is not None


def _compile(expression: str) -> Any:
    """None for an invalid expression."""
    try:
        return compile_expression(expression)
    except ValueError:
        return None
