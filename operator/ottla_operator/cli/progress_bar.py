"""Progress of long commands on standard error: a bar on a terminal, lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from ottla_operator.formatting import format_count, format_size
from ottla_operator.kafka.reassignments import ReassignmentProgress

LINE_INTERVAL_S: Final = 1.0

ShowReassignment = Callable[[ReassignmentProgress], None]


class ProduceProgress(Protocol):
    def update(self, records: int, size: int, read: int = 0) -> None:
        """`records`, `size`: records and bytes written so far. `read`: bytes of input read since
        the last update.
        """
        ...

    def finish(self, skipped: int) -> None:
        """`skipped`: records that already existed."""
        ...


@contextmanager
def produce_progress(quiet: bool, total: int | None, size: int | None) -> Iterator[ProduceProgress]:
    """Shows the progress of writing records. `total`: number of records to write. `size`: bytes of
    input. None for what is unknown.
    """
    if quiet:
        yield NoProgress()
    elif sys.stderr.isatty():
        with _produce_bar(total, size) as bar:
            yield bar
    else:
        yield ProgressLines()


class NoProgress:
    def update(self, records: int, size: int, read: int = 0) -> None: ...

    def finish(self, skipped: int) -> None: ...


@dataclass(slots=True)
class ProgressLines:
    started_s: float = field(default_factory=time.monotonic)
    records: int = 0
    size: int = 0
    _printed_s: float = field(default_factory=time.monotonic)

    def update(self, records: int, size: int, read: int = 0) -> None:
        self.records, self.size = records, size
        if time.monotonic() - self._printed_s >= LINE_INTERVAL_S:
            self._printed_s = time.monotonic()
            print(self.text(), file=sys.stderr, flush=True)

    def finish(self, skipped: int) -> None:
        existing = f"; {skipped:,} existed already" if skipped else ""
        print(f"{self.text()}{existing}", file=sys.stderr, flush=True)

    def text(self) -> str:
        seconds = max(1e-6, time.monotonic() - self.started_s)
        rate = f"{self.records / seconds:,.0f}/s"
        return f"{format_count(self.records, 'record')} written ({self.size / 1e6:.1f} MB) in {seconds:.1f} s, {rate}"


@contextmanager
def _produce_bar(total: int | None, size: int | None) -> Iterator[ProduceProgress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    has_total = total is not None or size is not None
    columns = [BarColumn(), TaskProgressColumn(), TimeRemainingColumn()] if has_total else [TimeElapsedColumn()]
    progress = Progress(TextColumn("{task.fields[text]}"), *columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("", total=total if total is not None else size, text="")
    lines = ProgressLines()
    total_read = 0

    class Bar:
        def update(self, records: int, size: int, read: int = 0) -> None:
            nonlocal total_read
            total_read += read
            lines.records, lines.size = records, size
            completed = records if total is not None else total_read
            progress.update(task, completed=completed, text=format_count(records, "record"))

        def finish(self, skipped: int) -> None:
            progress.stop()
            lines.finish(skipped)

    with progress:
        yield Bar()


@contextmanager
def reassignment_progress() -> Iterator[ShowReassignment]:
    """Yields a function that shows progress: in a bar on a terminal, in lines elsewhere."""
    if sys.stderr.isatty():
        with _reassignment_bar() as show:
            yield show
    else:
        yield _print_changed_lines()


def reassignment_line(progress: ReassignmentProgress) -> str:
    text = f"{progress.partitions - progress.unfinished} of {format_count(progress.partitions, 'partition')} reassigned"
    if not progress.total_bytes:
        return text
    copied, total = format_size(progress.copied_bytes), format_size(progress.total_bytes)
    return f"{text}; {copied} of {total} copied for the others"


def _print_changed_lines() -> ShowReassignment:
    last = ""

    def show(progress: ReassignmentProgress) -> None:
        nonlocal last
        if progress.unfinished and (line := reassignment_line(progress)) != last:
            last = line
            print(line, file=sys.stderr, flush=True)

    return show


@contextmanager
def _reassignment_bar() -> Iterator[ShowReassignment]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        total = copied = 0  # `progress` leaves out finished partitions; the bar keeps their bytes

        def show(progress: ReassignmentProgress) -> None:
            nonlocal total, copied
            total = max(total, copied + progress.total_bytes)
            copied = max(copied, total - progress.total_bytes + progress.copied_bytes)
            description = (
                f"{progress.partitions - progress.unfinished}/{format_count(progress.partitions, 'partition')}"
            )
            bar.update(task, description=description, total=total or None, completed=copied)

        yield show
