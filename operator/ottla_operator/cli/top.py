"""`ottla top`."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console
from rich.live import Live

from ottla_broker.wire.errors import KafkaError
from ottla_operator.cli.command_config import call_brokers
from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig, Output, OutputFormat, new_app
from ottla_operator.cli.output import print_document, print_rows
from ottla_operator.cli.top_rows import COLUMNS, Rates
from ottla_operator.cli.top_screen import (
    BACKSPACE,
    DOWN,
    ENTER,
    ESCAPE,
    HEADINGS,
    UP,
    VIEWS,
    Screen,
    render,
    visible_rows,
)
from ottla_operator.kafka.client import KafkaClient, Unreachable
from ottla_operator.kafka.cluster_sample import ClusterSample, take_sample

KEYS: Final = {
    "\x1b[A": UP,
    "\x1b[B": DOWN,
    "\r": ENTER,
    "\n": ENTER,
    "\x1b": ESCAPE,
    "\x7f": BACKSPACE,
    "\b": BACKSPACE,
}
"""What a terminal sends for keys that are not letters → the key's name."""
SEQUENCE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]?")
"""An escape sequence of a key, with parameters such as `5` of PageUp, and a final byte."""

Event: TypeAlias = str | ClusterSample | KafkaError | Unreachable
"""A key, a sample, or the error that prevented a sample."""

app = new_app()


@app.command()
def top(
    view: Annotated[str, typer.Argument(metavar="VIEW", help=f"{', '.join(VIEWS)}.")] = "topics",
    interval: Annotated[float, typer.Option("--interval", "-n", min=0.2, help="Seconds between two samples.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table after two samples, and exit.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    output: Output = OutputFormat.table,
) -> None:
    """Show what brokers, topics, groups and pipelines are doing, continuously.

    Without a terminal, and also with --once, -o json or -o yaml, it prints one view and exits.
    """
    if view not in VIEWS:
        raise CommandError(ExitCode.usage, f"there is no view {view!r}; allowed: {', '.join(VIEWS)}")
    screen = Screen().show(view)
    if not once and output is OutputFormat.table and sys.stdin.isatty() and sys.stdout.isatty():
        call_brokers(bootstrap, command_config, lambda client: _watch(client, screen, interval))
        return
    rows = visible_rows(screen, call_brokers(bootstrap, command_config, lambda client: _measure(client, interval)))
    if output is OutputFormat.table:
        shown = [{name: round(it) if isinstance(it, float) else it for name, it in row.items()} for row in rows]
        print_rows(shown, {it: HEADINGS.get(it, it.upper()) for it in COLUMNS[view]}, output)
    else:
        print_document(rows, output)


async def _measure(client: KafkaClient, interval_s: float) -> Rates:
    first = await take_sample(client)
    await asyncio.sleep(interval_s)
    return Rates(first, await take_sample(client))


async def _watch(client: KafkaClient, screen: Screen, interval_s: float) -> None:
    """Shows the screen until `q` or Ctrl-C. While no broker responds, the last sample stays."""
    rates, problem = Rates(None, await take_sample(client)), ""
    events: asyncio.Queue[Event] = asyncio.Queue()
    console = Console()
    sampling = asyncio.create_task(_sample_repeatedly(client, interval_s, events))
    try:
        with _queue_keys(events), Live(console=console, auto_refresh=False, screen=True) as live:
            while not screen.is_over:
                rows = visible_rows(screen, rates)
                live.update(render(screen, rates, rows, console.height, problem), refresh=True)
                match await events.get():
                    case str() as key:
                        screen = screen.press(key, rows)
                    case ClusterSample() as sample:
                        rates, problem = Rates(rates.now, sample), ""
                    case error:
                        problem = f"not up to date: {error}"
    finally:
        sampling.cancel()


async def _sample_repeatedly(client: KafkaClient, interval_s: float, events: "asyncio.Queue[Event]") -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            events.put_nowait(await take_sample(client))
        except (KafkaError, Unreachable) as error:
            events.put_nowait(error)


@contextmanager
def _queue_keys(events: "asyncio.Queue[Event]") -> Iterator[None]:
    """Puts keys into the queue as they are pressed. Restores the terminal at the end."""
    import termios
    import tty

    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def read() -> None:
        for key in split_keys(os.read(terminal, 256).decode(errors="ignore")):
            events.put_nowait(key)

    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def split_keys(text: str) -> Iterator[str]:
    """The keys in what a terminal has sent: letters, and names of others. Unknown sequences are
    skipped.
    """
    while text:
        if (sequence := SEQUENCE.match(text)) is not None:
            if sequence[0] in KEYS:
                yield KEYS[sequence[0]]
            text = text[sequence.end() :]
        else:
            yield KEYS.get(text[0], text[0])
            text = text[1:]
