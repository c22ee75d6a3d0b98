"""`ottla up`: everything that YAML files describe, on this machine."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.local import terminal
from ottla_operator.local.documents import InvalidFiles
from ottla_operator.local.home import Home, HomeLocked, default_home
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.up import UpRunner


def add_to(app: typer.Typer) -> None:
    app.command("up", help="Start everything that YAML files describe, on this machine, and keep to it until Ctrl-C.")(
        up
    )


def up(
    inputs: Annotated[list[Path], typer.Argument(metavar="DIR|FILE…", help="The same YAML that kubectl apply takes.")],
    home: Annotated[
        Path | None, typer.Option(help="Where data are kept; .ottla when not given.", envvar="OTTLA_HOME")
    ] = None,
    load: Annotated[
        bool, typer.Option(help="Run a load.py beside the YAML, which prints records as JSON lines, into the topics.")
    ] = True,
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    board = LiveView(say=partial(terminal.print_message, console))
    work = UpRunner(inputs, Home(home or default_home()), board, load)
    try:
        work.read_files()
        work.home.lock()
        clean = asyncio.run(_run(work, console, board))
    except InvalidFiles as bad:
        raise CommandError(ExitCode.usage, str(bad)) from bad
    except HomeLocked as busy:
        raise CommandError(ExitCode.failed, str(busy)) from busy
    except (OSError, ExceptionGroup) as error:
        if (said := _refused(error)) is None:
            raise
        raise CommandError(ExitCode.failed, said) from error
    for told in terminal.summary_lines(board):
        board.say(told, "info")
    board.say(
        f"everything is stopped; data stay in {work.home.path}"
        if clean
        else "stopped, but not everything ended by itself",
        "success" if clean else "warning",
    )
    if not clean:
        raise typer.Exit(ExitCode.failed)


def _refused(error: BaseException) -> str | None:
    """What the system refused, of which file; None when it is something else."""
    match error:
        case OSError(filename=str() | Path() as file, strerror=str(why)):
            return f"{file}: {why}"
        case BaseExceptionGroup():
            said = [_refused(it) for it in error.exceptions]
            return next(iter(said), None) if None not in said else None
        case _:
            return None


async def _run(work: UpRunner, console: Console, board: LiveView) -> bool:
    async with terminal.live_table(console, board):
        return await work.run()
