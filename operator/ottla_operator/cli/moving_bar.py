"""How far partitions are that move: a bar on a terminal, a line for every change elsewhere. On standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla_operator.formatting import format_size
from ottla_operator.kafka.progress import ReassignmentProgress

Shown = Callable[[ReassignmentProgress], None]


@contextmanager
def bar() -> Iterator[Shown]:
    if sys.stderr.isatty():
        with _bar() as shown:
            yield shown
    else:
        yield _lines()


def line(now: ReassignmentProgress) -> str:
    said = f"{now.partitions - now.unfinished} of {now.partitions} partitions have arrived"
    return (
        f"{said}; {format_size(now.copied_bytes)} of {format_size(now.total_bytes)} copied of the rest"
        if now.total_bytes
        else said
    )


def _lines() -> Shown:
    last = ""

    def shown(now: ReassignmentProgress) -> None:
        nonlocal last
        if now.unfinished and (said := line(now)) != last:
            last = said
            print(said, file=sys.stderr, flush=True)

    return shown


@contextmanager
def _bar() -> Iterator[Shown]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("", total=None)
        most = done = 0  # partitions that arrive take their bytes out of the figures: what they were stays counted

        def shown(now: ReassignmentProgress) -> None:
            nonlocal most, done
            most = max(most, done + now.total_bytes)
            done = max(done, most - now.total_bytes + now.copied_bytes)
            drawn.update(
                task,
                description=f"{now.partitions - now.unfinished}/{now.partitions} partitions",
                total=most or None,
                completed=done,
            )

        yield shown
