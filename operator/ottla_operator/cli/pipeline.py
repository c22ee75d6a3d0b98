"""`ottla pipeline`. The work is done by `python -m ottla_spark`, which needs Java and PySpark."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, new_app
from ottla_operator.local import documents
from ottla_operator.local.documents import InvalidFiles

File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with a Pipeline.", exists=True, dir_okay=False)]
Name = Annotated[str | None, typer.Option("--name", help="Name of the Pipeline, if the file has several.")]

app = new_app("Validate, run and test pipelines.")


@app.command()
def validate(file: File, name: Name = None) -> None:
    """Validate a pipeline without running it.

    Checks its schema, SQL and Python functions.
    """
    _validate_resource(file)
    _run_ottla_spark("validate", file, name)


@app.command("run")
def run_(
    file: File,
    name: Name = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    checkpoint: Annotated[Path | None, typer.Option(help="Checkpoint folder. Default: spec.checkpoint.path.")] = None,
) -> None:
    """Run a pipeline on this machine.

    It runs until it finishes or Ctrl-C. Shows progress with an estimate until it has caught up.
    """
    _validate_resource(file)
    options = ("--checkpoint", str(checkpoint)) if checkpoint else ()
    _run_ottla_spark("run", file, name, "--bootstrap", bootstrap, "--show-progress", *options)


@app.command()
def test(
    file: File,
    name: Name = None,
    cases: Annotated[
        Path | None, typer.Option(help="Folder of test cases. Default: FILE with .test instead of .yaml.")
    ] = None,
) -> None:
    """Run the test cases of a pipeline.

    Compares the rows of the sinks. Needs no broker.
    """
    _validate_resource(file)
    _run_ottla_spark("test", file, name, *(("--cases", str(cases)) if cases else ()))


def _validate_resource(file: Path) -> None:
    """Raises CommandError with the line of each problem. The file need not have the Pipeline's
    Cluster.
    """
    try:
        found = documents.read_file(file)
    except InvalidFiles as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    if not any(it.kind == "Pipeline" for it in found):
        raise CommandError(ExitCode.not_found, f"{file}: there is no Pipeline")


def _run_ottla_spark(command: str, file: Path, name: str | None, *options: str) -> None:
    """Replaces this process."""
    for package, remedy in (("ottla_spark", "it is not installed"), ("pyspark", "pip install 'ottla[spark]'")):
        if find_spec(package) is None:
            raise CommandError(ExitCode.failed, f"pipelines need {package}: {remedy}")
    sys.stdout.flush()
    selected = ("--name", name) if name else ()
    arguments = [command, "--pipeline", str(file), *selected, *options]
    os.execv(sys.executable, [sys.executable, "-m", "ottla_spark", *arguments])
