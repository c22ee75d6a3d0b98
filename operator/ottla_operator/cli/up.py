"""`ottla up`."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import new_app
from ottla_operator.local import terminal
from ottla_operator.local.documents import InvalidFiles
from ottla_operator.local.home import Home, HomeLocked, default_home
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.up import UpRunner

app = new_app()


@app.command()
def up(
    inputs: Annotated[
        list[Path], typer.Argument(metavar="DIR|FILE", help="YAML files or folders, as kubectl apply takes them.")
    ],
    home: Annotated[
        Path | None, typer.Option(help="Folder for data and logs. Default: .ottla.", envvar="OTTLA_HOME")
    ] = None,
    load: Annotated[
        bool,
        typer.Option(help="Run load.py, or load-CLUSTER.py, beside the YAML and produce the JSON lines it prints."),
    ] = True,
) -> None:
    """Run the resources in YAML files on this machine until Ctrl-C.

    Brokers run as processes, pipelines on local Spark. Edits of the files are applied while it
    runs.

    Example: ottla up examples/flights
    """
    console = Console(highlight=False, soft_wrap=True)
    view = LiveView(say=partial(terminal.print_message, console))
    runner = UpRunner(inputs, Home(home or default_home()), view, load)
    try:
        runner.read_files()
        runner.home.lock()
        stopped = asyncio.run(_run(runner, console, view))
    except InvalidFiles as error:
        raise CommandError(ExitCode.usage, str(error)) from error
    except HomeLocked as error:
        raise CommandError(ExitCode.failed, str(error)) from error
    except (OSError, ExceptionGroup) as error:
        if (message := _describe_file_error(error)) is None:
            raise
        raise CommandError(ExitCode.failed, message) from error
    for line in terminal.summary_lines(view):
        view.say(line, "info")
    if stopped:
        view.say(f"all processes stopped; the data remain in {runner.home.path}", "success")
    else:
        view.say("stopped; some processes had to be killed", "warning")
        raise typer.Exit(ExitCode.failed)


def _describe_file_error(error: BaseException) -> str | None:
    """File and reason of an OSError, also in a group; None for other errors."""
    match error:
        case OSError(filename=str() | Path() as file, strerror=str(reason)):
            return f"{file}: {reason}"
        case BaseExceptionGroup():
            messages = [_describe_file_error(it) for it in error.exceptions]
            return next(iter(messages), None) if None not in messages else None
        case _:
            return None


async def _run(runner: UpRunner, console: Console, view: LiveView) -> bool:
    """Runs until a signal stops it. Returns False if processes had to be killed."""
    async with terminal.live_table(console, view):
        return await runner.run()
