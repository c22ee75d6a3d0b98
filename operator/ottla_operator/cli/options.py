"""Options that several commands have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer


class OutputFormat(StrEnum):
    table = "table"
    json = "json"
    yaml = "yaml"


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap", "-b", envvar="OTTLA_BOOTSTRAP", metavar="HOST:PORT,…", help="Addresses of some brokers."
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="OTTLA_COMMAND_CONFIG",
        metavar="FILE",
        help="Client properties for TLS and SASL, as for Kafka's tools.",
        dir_okay=False,
    ),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format: table, json or yaml.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, without doing it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AllTopics = Annotated[bool, typer.Option("--all", help="All topics, including internal ones.")]
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def new_app(help_: str | None = None, **options: Any) -> typer.Typer:
    """A Typer with the settings that all commands have. `help_`: help of a group of commands; None
    for a single command.
    """
    settings = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None} | options
    return typer.Typer(help=help_, no_args_is_help=help_ is not None, **settings)


def parse_pairs(values: list[str], kind: str) -> dict[str, str]:
    """Parses NAME=VALUE arguments. Raises typer.BadParameter."""
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{value!r} is not a {kind}; expected NAME=VALUE")
        pairs[name] = rest
    return pairs
