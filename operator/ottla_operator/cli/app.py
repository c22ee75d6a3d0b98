"""The command line put together: just the module that the first argument names, or all of them for help and completion."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Annotated

import typer

from ottla_operator.cli.exit_codes import CommandError, tell
from ottla_operator.cli.main import COMMANDS

HELP = """Event streaming with Kafka's protocol: brokers, topics and pipelines from YAML.

Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 not found, 4 not reachable.
The brokers asked are those of --bootstrap, or of $OTTLA_BOOTSTRAP, or 127.0.0.1:9092;
--command-config, or $OTTLA_COMMAND_CONFIG, says how where they want TLS or a login."""


def run(arguments: Sequence[str]) -> None:
    """Runs one command and exits with its code. Errors are one line on stderr."""
    app = build(arguments[0] if arguments else "")
    try:
        app(args=list(arguments), prog_name="ottla")
    except CommandError as failure:
        tell(failure)
        sys.exit(failure.code)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def build(first: str) -> typer.Typer:
    """The whole command where `first` is none of its commands."""
    app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_root)
    for module in dict.fromkeys([COMMANDS[first]] if first in COMMANDS else COMMANDS.values()):
        import_module(f"ottla_operator.cli.{module}").add_to(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ottla {metadata.version('ottla')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
