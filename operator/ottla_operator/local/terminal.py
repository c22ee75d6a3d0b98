"""What `ottla up` shows: on a terminal a live table below the lines that stay, elsewhere the lines alone."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla_operator.formatting import format_size
from ottla_operator.local.live_view import LiveView, State

REFRESH_S = 0.25
COLOURS = {
    State.ready: "green",
    State.running: "green",
    State.finished: "green",
    State.starting: "yellow",
    State.stopping: "yellow",
    State.retrying: "red",
    State.failed: "bold red",
}
KINDS = {"good": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red"), "info": ("·", "dim")}


def line(text: str, kind: str) -> Text:
    """A line that stays."""
    sign, colour = KINDS[kind]
    return Text.assemble((sign, colour), " ", (text, "" if kind in ("good", "info") else colour))


def print_message(console: Console, text: str, kind: str) -> None:
    """Prints a line that stays. Where nobody reads any more (`| tee` had the same Ctrl-C) nothing is printed, and what runs is still stopped in order."""
    try:
        console.print(line(text, kind))
    except (OSError, SystemExit):  # the latter is what rich makes of a broken pipe
        console.quiet = True


@asynccontextmanager
async def live_table(console: Console, board: LiveView) -> AsyncIterator[None]:
    """Keeps the table up to date while the block runs. Nothing where the console is no terminal."""
    if not console.is_terminal:
        yield
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        async def refresh() -> None:
            while True:
                live.update(render(board, console.height), refresh=True)
                await asyncio.sleep(REFRESH_S)

        refreshing = asyncio.create_task(refresh())
        try:
            yield
        finally:
            refreshing.cancel()
            live.update(Text(""), refresh=True)


def render(board: LiveView, height: int) -> RenderableType:
    """The whole table, in at most `height` lines."""
    parts: list[RenderableType] = [_brokers(board)]
    room = max(
        3,
        height
        - 6
        - len(board.brokers)
        - len(board.pipelines) * 2
        - len(board.mirrors) * 2
        - len(board.loads)
        - len(board.moving)
        - 8,
    )
    if board.topics:
        parts.append(_topics(board, room))
    if board.mirrors:
        parts.append(_mirrors(board))
    if board.pipelines:
        parts.append(_pipelines(board))
    parts += [
        Text.assemble(
            ("load ", "bold"), it.script, "  ", (it.state.value, COLOURS.get(it.state, "dim")), "  ", (it.note, "dim")
        )
        for it in board.loads.values()
    ]
    parts += [
        Text.assemble(("moving ", "bold"), cluster, "  ", (how_far, "dim")) for cluster, how_far in board.moving.items()
    ]
    parts.append(Text("Ctrl-C stops everything; data stay", style="dim"))
    return Group(*parts)


def _table(columns: Sequence[tuple[str, bool]]) -> Table:
    """`columns`: (heading, whether it holds numbers)."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=False)
    for heading, numbers in columns:
        table.add_column(heading, justify="right" if numbers else "left", no_wrap=heading != "", overflow="ellipsis")
    return table


def _brokers(board: LiveView) -> Table:
    table = _table(
        [
            ("BROKER", False),
            ("ADDRESS", False),
            ("STATE", False),
            ("PID", True),
            ("LEADS", True),
            ("REPLICAS", True),
            ("BEHIND", True),
            ("", False),
        ]
    )
    several = len(board.brokers) > 1
    for it in board.brokers.values():
        table.add_row(
            it.label,
            it.address,
            _state(it.state),
            str(it.pid or ""),
            _count(it.leads),
            _count(it.replicas),
            Text(_count(it.behind), style="red" if it.behind else ""),
            _note(it.note or ("controller" if several and it.controller else "")),
        )
    return table


def _topics(board: LiveView, room: int) -> Table:
    table = _table(
        [
            ("TOPIC", False),
            ("STATE", False),
            ("PARTITIONS", True),
            ("RECORDS", True),
            ("/S", True),
            ("BYTES", True),
            ("LAG", True),
            ("", False),
        ]
    )
    several = len({cluster for cluster, _ in board.topics}) > 1
    rows = sorted(board.topics.values(), key=lambda it: (it.cluster, it.name))
    if len(rows) > room:  # the busy ones and those in trouble are what people look for
        rows.sort(key=lambda it: (it.state is State.ready, -it.records_per_second, -(it.records or 0)))
    for it in rows[:room]:
        table.add_row(
            f"{it.cluster}/{it.name}" if several else it.name,
            _state(it.state),
            _count(it.partitions),
            _count(it.records),
            _count(round(it.records_per_second)) if it.records_per_second >= 0.5 else "",
            format_size(it.bytes),
            _count(it.lag_records),
            _note(it.note or (f"group {it.lag_group}" if it.lag_group else "")),
        )
    if len(rows) > room:
        table.add_row(f"… and {len(rows) - room} more", *[""] * 7)
    return table


def _pipelines(board: LiveView) -> Table:
    table = _table(
        [
            ("PIPELINE", False),
            ("STATE", False),
            ("ROWS IN", True),
            ("/S", True),
            ("ROWS OUT", True),
            ("LAG", True),
            ("", False),
        ]
    )
    for it in board.pipelines.values():
        table.add_row(
            it.name,
            _state(it.state),
            _count(it.rows_in),
            _count(round(it.rows_per_second)) if it.rows_per_second else "",
            _count(it.rows_out),
            _lag(it.lag_records, it.lag_seconds),
            _note(it.note),
        )
    return table


def _mirrors(board: LiveView) -> Table:
    table = _table([("MIRROR", False), ("STATE", False), ("TOPICS", True), ("LAG", True), ("", False)])
    for it in board.mirrors.values():
        table.add_row(
            it.name, _state(it.state), _count(it.topics), _lag(it.lag_records, it.lag_seconds), _note(it.note)
        )
    return table


def summary_lines(board: LiveView) -> Iterable[str]:
    """What was there at the end, for those who saw no table."""
    for it in sorted(board.topics.values(), key=lambda it: (it.cluster, it.name)):
        if it.records is not None:
            yield f"topic {it.name}: {it.records:,} records, {format_size(it.bytes) or 'size unknown'}"
    for row in board.pipelines.values():
        yield f"pipeline {row.name}: {row.rows_in:,} rows in, {row.rows_out:,} rows out"


def _state(state: State) -> Text:
    return Text(state.value, style=COLOURS.get(state, "dim"))


def _note(text: str) -> Text:
    return Text(text, style="dim")


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _lag(records: int | None, seconds: float | None) -> str:
    if records is None:
        return ""
    return f"{records:,}" if seconds is None else f"{records:,} ({seconds:.0f} s)"
