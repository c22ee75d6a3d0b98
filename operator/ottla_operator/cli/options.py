"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
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
        help="Client properties, as Kafka's tools take them: TLS and logins.",
        dir_okay=False,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="table for people; json or yaml for programs.")]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def pairs(values: list[str], what: str) -> dict[str, str]:
    """key=value arguments as a mapping. typer.BadParameter when one has no `=`."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{value!r} is no {what}; write name=value")
        found[key] = rest
    return found
