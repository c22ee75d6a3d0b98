"""The live view on a terminal: a table below the messages. If the output is no terminal, only
messages are printed.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla_operator.formatting import format_count, format_size
from ottla_operator.local.live_view import LiveView, MessageKind, State

REFRESH_S: Final = 0.25
MIN_TOPIC_ROWS: Final = 3
RESERVED_LINES: Final = 14
"""Headings, the footer, and lines of messages above the table."""
COLOURS: Final = {
    State.ready: "green",
    State.running: "green",
    State.finished: "green",
    State.starting: "yellow",
    State.stopping: "yellow",
    State.retrying: "red",
    State.failed: "bold red",
}
SIGNS: Final[dict[MessageKind, tuple[str, str]]] = {
    "success": ("✓", "green"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
    "info": ("·", "dim"),
}


def format_message(text: str, kind: MessageKind) -> Text:
    sign, colour = SIGNS[kind]
    return Text.assemble((sign, colour), " ", (text, "" if kind in ("success", "info") else colour))


def print_message(console: Console, text: str, kind: MessageKind) -> None:
    """Prints nothing once the output is closed: with `| tee`, tee gets the same Ctrl-C, and
    processes must still be stopped in order.
    """
    try:
        console.print(format_message(text, kind))
    except (OSError, SystemExit):  # rich exits on a broken pipe
        console.quiet = True


@asynccontextmanager
async def live_table(console: Console, view: LiveView) -> AsyncIterator[None]:
    """Refreshes the table while the block runs. Does nothing without a terminal."""
    if not console.is_terminal:
        yield
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:

        async def refresh() -> None:
            while True:
                live.update(render(view, console.height), refresh=True)
                await asyncio.sleep(REFRESH_S)

        refreshing = asyncio.create_task(refresh())
        try:
            yield
        finally:
            refreshing.cancel()
            live.update(Text(""), refresh=True)


def render(view: LiveView, height: int) -> RenderableType:
    """All tables. Topics that do not fit into `height` lines are only counted, but at least
    MIN_TOPIC_ROWS are shown.
    """
    other_lines = (
        len(view.brokers) + 2 * len(view.pipelines) + 2 * len(view.mirrors) + len(view.loads) + len(view.moving)
    )
    other_lines += 2 * len(view.schemas)
    tables = [_brokers(view)]
    if view.topics:
        tables.append(_topics(view, max(MIN_TOPIC_ROWS, height - RESERVED_LINES - other_lines)))
    if view.schemas:
        tables.append(_schemas(view))
    if view.mirrors:
        tables.append(_mirrors(view))
    if view.pipelines:
        tables.append(_pipelines(view))
    loads = [
        Text.assemble(("load ", "bold"), it.script, "  ", _state(it.state), "  ", (it.note, "dim"))
        for it in view.loads.values()
    ]
    moving = [Text.assemble(("moving ", "bold"), cluster, "  ", (it, "dim")) for cluster, it in view.moving.items()]
    return Group(*tables, *loads, *moving, Text("Ctrl-C stops everything; data stay", style="dim"))


def _table(columns: str) -> Table:
    """`columns`: headings separated by |; > marks numeric columns. A last column without a heading
    is for notes.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=False)
    for heading in columns.split("|"):
        justify = "right" if heading.startswith(">") else "left"
        table.add_column(heading.lstrip(">"), justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    table.add_column("", overflow="ellipsis")
    return table


def _brokers(view: LiveView) -> Table:
    table = _table("BROKER|ADDRESS|STATE|>PID|>LEADS|>REPLICAS|>OUT-OF-SYNC")
    shows_controller = len(view.brokers) > 1
    for row in view.brokers.values():
        table.add_row(
            row.label,
            row.address,
            _state(row.state),
            str(row.pid or ""),
            _count(row.leads),
            _count(row.replicas),
            Text(_count(row.out_of_sync), style="red" if row.out_of_sync else ""),
            _note(row.note or ("controller" if shows_controller and row.is_controller else "")),
        )
    return table


def _topics(view: LiveView, max_rows: int) -> Table:
    table = _table("TOPIC|STATE|>PARTITIONS|>RECORDS|>/S|>BYTES|>LAG")
    shows_cluster = len({cluster for cluster, _ in view.topics}) > 1
    rows = sorted(view.topics.values(), key=lambda it: (it.cluster, it.name))
    if len(rows) > max_rows:  # those with problems first, then the busiest
        rows.sort(key=lambda it: (it.state is State.ready, -it.records_per_second, -(it.records or 0)))
    for row in rows[:max_rows]:
        table.add_row(
            f"{row.cluster}/{row.name}" if shows_cluster else row.name,
            _state(row.state),
            _count(row.partitions),
            _count(row.records),
            _count(round(row.records_per_second)) if row.records_per_second >= 0.5 else "",
            format_size(row.bytes),
            _count(row.lag_records),
            _note(row.note or (f"group {row.lag_group}" if row.lag_group else "")),
        )
    if len(rows) > max_rows:
        table.add_row(f"… and {len(rows) - max_rows} more", *[""] * 7)
    return table


def _pipelines(view: LiveView) -> Table:
    table = _table("PIPELINE|STATE|>ROWS IN|>/S|>ROWS OUT|>LAG")
    for row in view.pipelines.values():
        rate = _count(round(row.rows_per_second)) if row.rows_per_second else ""
        lag = _lag(row.lag_records, row.lag_seconds)
        table.add_row(
            row.name, _state(row.state), _count(row.rows_in), rate, _count(row.rows_out), lag, _note(row.note)
        )
    return table


def _schemas(view: LiveView) -> Table:
    table = _table("SCHEMA|STATE|>VERSION|>ID|COMPATIBILITY")
    for row in view.schemas.values():
        version, id_ = _count(row.version), "" if row.id is None else str(row.id)
        table.add_row(row.subject, _state(row.state), version, id_, row.compatibility, _note(row.note))
    return table


def _mirrors(view: LiveView) -> Table:
    table = _table("MIRROR|STATE|>TOPICS|>LAG")
    for row in view.mirrors.values():
        lag = _lag(row.lag_records, row.lag_seconds)
        table.add_row(row.name, _state(row.state), _count(row.topics), lag, _note(row.note))
    return table


def summary_lines(view: LiveView) -> Iterable[str]:
    """The final counts of topics and pipelines, which stay when the table is gone."""
    for topic in sorted(view.topics.values(), key=lambda it: (it.cluster, it.name)):
        if topic.records is not None:
            size = format_size(topic.bytes) or "size unknown"
            yield f"topic {topic.name}: {format_count(topic.records, 'record')}, {size}"
    for row in view.pipelines.values():
        yield f"pipeline {row.name}: {format_count(row.rows_in, 'row')} in, {format_count(row.rows_out, 'row')} out"


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
