"""How far partitions are that move: a bar on a terminal, a line for every change elsewhere. On standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla_operator.brokers.progress import Progress
from ottla_operator.figures import size_text

Shown = Callable[[Progress], None]


@contextmanager
def bar() -> Iterator[Shown]:
    if sys.stderr.isatty():
        with _bar() as shown:
            yield shown
    else:
        yield _lines()


def line(now: Progress) -> str:
    said = f"{now.partitions - now.moving} of {now.partitions} partitions have arrived"
    return (
        f"{said}; {size_text(now.bytes)} of {size_text(now.total_bytes)} copied of the rest"
        if now.total_bytes
        else said
    )


def _lines() -> Shown:
    last = ""

    def shown(now: Progress) -> None:
        nonlocal last
        if now.moving and (said := line(now)) != last:
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

        def shown(now: Progress) -> None:
            nonlocal most, done
            most = max(most, done + now.total_bytes)
            done = max(done, most - now.total_bytes + now.bytes)
            drawn.update(
                task,
                description=f"{now.partitions - now.moving}/{now.partitions} partitions",
                total=most or None,
                completed=done,
            )

        yield shown
