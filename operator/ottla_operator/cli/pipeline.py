"""`ottla pipeline`. `diff` compares specs itself. The work of the other commands is done by
`python -m ottla_spark`, which needs Java and PySpark.
"""

import os
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputFormat, new_app
from ottla_operator.cli.output import print_document, print_rows
from ottla_operator.local import documents
from ottla_operator.local.documents import InvalidFiles
from ottla_operator.plan.pipeline.spec_changes import compare_specs, needs_new_checkpoint, plan_migration
from ottla_operator.resources.pipeline import Pipeline

File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with a Pipeline.", exists=True, dir_okay=False)]
Name = Annotated[str | None, typer.Option("--name", help="Name of the Pipeline, if the file has several.")]

COLUMNS: Final = {
    "field": "FIELD",
    "before": "BEFORE",
    "after": "AFTER",
    "checkpoint": "CHECKPOINT",
    "reason": "REASON",
}

app = new_app("Validate, run, test and compare pipelines.")


@app.command()
def validate(file: File, name: Name = None) -> None:
    """Validate a pipeline without running it.

    Checks its schema, SQL and Python functions.
    """
    _read_pipelines(file)
    _run_ottla_spark("validate", file, name)


@app.command("run")
def run_(
    file: File,
    name: Name = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    checkpoint: Annotated[Path | None, typer.Option(help="Checkpoint folder. Default: spec.checkpoint.path.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="HTML file to write, with plots of rates, lag and rejected rows by rule."),
    ] = None,
) -> None:
    """Run a pipeline on this machine.

    Runs until the pipeline finishes or Ctrl-C. Shows progress with an estimate until the pipeline
    has caught up.
    """
    _read_pipelines(file)
    options = [
        *(("--checkpoint", str(checkpoint)) if checkpoint else ()),
        *(("--report", str(report)) if report else ()),
    ]
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
    _read_pipelines(file)
    _run_ottla_spark("test", file, name, *(("--cases", str(cases)) if cases else ()))


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="YAML file with the version that runs.", exists=True)],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="YAML file with the new version.", exists=True)],
    name: Name = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show which changes of a pipeline keep its checkpoint.

    Compares two versions of its YAML, and says how to apply the new one. Runs nothing. Exits with 1
    if the new version needs a new checkpoint.

    Example: kubectl get pipeline delays -o yaml > old.yaml; ottla pipeline diff old.yaml new.yaml
    """
    before, after = (_select_pipeline(file, name) for file in (old, new))
    changes = compare_specs(before, after)
    steps = plan_migration(after.name, changes)
    if output is OutputFormat.table and not changes:
        print("no differences")
    elif output is OutputFormat.table:
        print_rows([asdict(it) for it in changes], COLUMNS, output)
        print(*(f"{number}. {step}" for number, step in enumerate(steps, 1)), sep="\n")
    else:
        print_document({"changes": [asdict(it) for it in changes], "plan": steps}, output)
    if needs_new_checkpoint(changes):
        raise typer.Exit(ExitCode.failed)


def _select_pipeline(file: Path, name: str | None) -> Pipeline:
    """The Pipeline of a file. Raises CommandError."""
    found = [it for it in _read_pipelines(file) if name is None or it.name == name]
    if not found:
        raise CommandError(ExitCode.not_found, f"{file}: there is no Pipeline {name}")
    if len(found) > 1:
        names = ", ".join(it.name for it in found)
        raise CommandError(ExitCode.usage, f"{file}: several Pipelines ({names}); select one with --name")
    return Pipeline.parse(found[0].data)


def _read_pipelines(file: Path) -> list[documents.Document]:
    """The Pipelines of a file. Raises CommandError with the line of each problem. The file need not
    have the Pipeline's Cluster.
    """
    try:
        found = [it for it in documents.read_file(file) if it.kind == "Pipeline"]
    except InvalidFiles as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    if not found:
        raise CommandError(ExitCode.not_found, f"{file}: there is no Pipeline")
    return found


def _run_ottla_spark(command: str, file: Path, name: str | None, *options: str) -> None:
    """Replaces this process by `python -m ottla_spark`. Raises CommandError if a package is
    missing.
    """
    for package, hint in (("ottla_spark", "it is not installed"), ("pyspark", "pip install 'ottla[spark]'")):
        if find_spec(package) is None:
            raise CommandError(ExitCode.failed, f"pipelines need {package}: {hint}")
    sys.stdout.flush()
    selected = ("--name", name) if name else ()
    arguments = [command, "--pipeline", str(file), *selected, *options]
    os.execv(sys.executable, [sys.executable, "-m", "ottla_spark", *arguments])
