"""How far a long piece of work is: a bar on a terminal, now and then a line elsewhere, and one line at the end. All on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

LINE_EVERY_S = 1.0


class Meter(Protocol):
    def now(self, records: int, size: int, read: int = 0) -> None:
        """`records` and `size` (bytes): written so far. `read`: bytes of input taken since the last time."""
        ...

    def done(self, left_out: int) -> None:
        """`left_out`: records that were there already."""
        ...


@contextmanager
def meter(quiet: bool, total: int | None, size: int | None) -> Iterator[Meter]:
    """`total`: records that will come; `size`: bytes of input. Either may be unknown."""
    if quiet:
        yield Silence()
    elif sys.stderr.isatty():
        with _bar(total, size) as bar:
            yield bar
    else:
        yield Lines()


class Silence:
    def now(self, records: int, size: int, read: int = 0) -> None: ...

    def done(self, left_out: int) -> None: ...


@dataclass(slots=True)
class Lines:
    began: float = field(default_factory=time.monotonic)
    records: int = 0
    size: int = 0
    _last: float = field(default_factory=time.monotonic)

    def now(self, records: int, size: int, read: int = 0) -> None:
        self.records, self.size = records, size
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            print(self.text(), file=sys.stderr, flush=True)

    def done(self, left_out: int) -> None:
        there = f"; {left_out:,} were there already" if left_out else ""
        print(f"{self.text()}{there}", file=sys.stderr, flush=True)

    def text(self) -> str:
        seconds = max(1e-6, time.monotonic() - self.began)
        return f"{self.records:,} records written ({self.size / 1e6:.1f} MB) in {seconds:.1f} s, {self.records / seconds:,.0f}/s"


@contextmanager
def _bar(total: int | None, size: int | None) -> Iterator[Meter]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    counted = total is not None or size is not None
    shown = [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()] if counted else [TimeElapsedColumn()]
    progress = Progress(TextColumn("{task.fields[told]}"), *shown, console=Console(stderr=True), transient=True)
    task = progress.add_task("", total=total if total is not None else size, told="")
    lines = Lines()
    taken = 0

    class Bar:
        def now(self, records: int, size: int, read: int = 0) -> None:
            nonlocal taken
            taken += read
            lines.records, lines.size = records, size
            progress.update(task, completed=records if total is not None else taken, told=f"{records:,} records")

        def done(self, left_out: int) -> None:
            progress.stop()
            lines.done(left_out)

    with progress:
        yield Bar()
