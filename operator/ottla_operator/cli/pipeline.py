"""`ottla pipeline`: validate, run, test. The work is done by `python -m ottla_spark`, which needs Java and PySpark."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from ottla_operator.local import documents
from ottla_operator.local.documents import InvalidFiles

File = Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with a Pipeline.", exists=True, dir_okay=False)]
Name = Annotated[str | None, typer.Option("--name", help="Which one, where the file holds several.")]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Pipelines.", no_args_is_help=True)
    group.command(help="Check a pipeline: its schema, its SQL, its functions.")(validate)
    group.command("run", help="Run a pipeline here, until Ctrl-C or its end.")(run_)
    group.command(help="Run a pipeline on the JSON lines beside it and compare the rows.")(test)
    app.add_typer(group, name="pipeline")


def validate(file: File, name: Name = None) -> None:
    _check(file)
    _hand_over("validate", file, name)


def run_(
    file: File,
    name: Name = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    checkpoint: Annotated[Path | None, typer.Option(help="Where it keeps how far it is.")] = None,
) -> None:
    _check(file)
    _hand_over("run", file, name, "--bootstrap", bootstrap, *(("--checkpoint", str(checkpoint)) if checkpoint else ()))


def test(
    file: File,
    name: Name = None,
    cases: Annotated[
        Path | None, typer.Option(help="The folder of cases; without it, what lies beside the file.")
    ] = None,
) -> None:
    _check(file)
    _hand_over("test", file, name, *(("--cases", str(cases)) if cases else ()))


def _check(file: Path) -> None:
    """The resource against its schema, with the lines of what is wrong. Its cluster need not be in the same file."""
    try:
        found = documents.read_file(file)
    except InvalidFiles as bad:
        raise CommandError(ExitCode.usage, str(bad)) from bad
    if not any(it.kind == "Pipeline" for it in found):
        raise CommandError(ExitCode.not_found, f"{file}: there is no Pipeline")


def _hand_over(command: str, file: Path, name: str | None, *options: str) -> None:
    for package, remedy in (("ottla_spark", "it is not installed"), ("pyspark", "pip install 'ottla[spark]'")):
        if find_spec(package) is None:
            raise CommandError(ExitCode.failed, f"pipelines need {package}: {remedy}")
    sys.stdout.flush()
    named = ("--name", name) if name else ()
    os.execv(sys.executable, [sys.executable, "-m", "ottla_spark", command, "--pipeline", str(file), *named, *options])
