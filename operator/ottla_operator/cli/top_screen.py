"""The screen of `ottla top`: what the keys choose, and how rows are shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ottla_operator.cli.output import Row, format_cell
from ottla_operator.cli.top_rows import (
    COLUMNS,
    IDS,
    Rates,
    broker_rows,
    committed_rows,
    group_rows,
    partition_rows,
    pipeline_rows,
    sort_rows,
    summarize_health,
    topic_rows,
)
from ottla_operator.formatting import format_count, format_size

VIEWS: Final = ("brokers", "topics", "groups", "pipelines")
DETAILS: Final[Mapping[str, str]] = {"topics": "topic", "groups": "group"}
"""View → the view of one of its rows."""
SORTED_BY: Final = {
    "brokers": "broker",
    "topics": "recordsPerSecond",
    "groups": "lag",
    "pipelines": "lag",
    "topic": "partition",
    "group": "lag",
}
HEADINGS: Final = {
    "recordsPerSecond": "RECORDS/S",
    "bytesPerSecond": "BYTES/S",
    "consumedPerSecond": "CONSUMED/S",
    "outOfSync": "OUT-OF-SYNC",
    "rowsPerSecond": "ROWS/S",
    "lagSeconds": "LAG (S)",
    "reportedAgo": "REPORTED (S AGO)",
}
HELP: Final = (
    "b brokers · t topics · g groups · p pipelines · ↑↓ select · Enter open · Esc back · s sort · / filter · q quit"
)
UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
RESERVED_LINES: Final = 5
"""Health and an empty line, title and heading of the table, and the keys."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What the keys have chosen. `sort`: the column that rows are sorted by. `filter`: text that
    the names of shown rows contain. `is_typing`: keys are letters of the filter. `selected`: index
    of the row. `opened`: the topic or group whose partitions are shown; empty if none is.
    `is_over`: the user has quit.
    """

    view: str = "topics"
    sort: str = SORTED_BY["topics"]
    filter: str = ""
    is_typing: bool = False
    selected: int = 0
    opened: str = ""
    is_over: bool = False

    def show(self, view: str, opened: str = "") -> "Screen":
        """The screen with another view, unfiltered."""
        return replace(self, view=view, opened=opened, sort=SORTED_BY[view], filter="", selected=0)

    def press(self, key: str, rows: Sequence[Row]) -> "Screen":
        """The screen after a key. `rows`: the result of `visible_rows`."""
        if self.is_typing:
            return self._edit_filter(key)
        match key:
            case "q":
                return replace(self, is_over=True)
            case "b" | "t" | "g" | "p":
                return self.show({it[0]: it for it in VIEWS}[key])
            case "s":
                columns = COLUMNS[self.view]
                return replace(self, sort=columns[(columns.index(self.sort) + 1) % len(columns)], selected=0)
            case "/":
                return replace(self, is_typing=True, selected=0)
            case str() if key == UP:
                return replace(self, selected=max(0, self.selected - 1))
            case str() if key == DOWN:
                return replace(self, selected=max(0, min(len(rows) - 1, self.selected + 1)))
            case str() if key == ENTER and self.view in DETAILS and self.selected < len(rows):
                return self.show(DETAILS[self.view], str(rows[self.selected][DETAILS[self.view]]))
            case str() if key == ESCAPE:
                return self.show(f"{self.view}s") if self.opened else replace(self, filter="", selected=0)
        return self

    def _edit_filter(self, key: str) -> "Screen":
        if key in (ENTER, ESCAPE):
            return replace(self, is_typing=False, filter="" if key == ESCAPE else self.filter)
        if key == BACKSPACE:
            return replace(self, filter=self.filter[:-1])
        return replace(self, filter=self.filter + key) if len(key) == 1 and key.isprintable() else self


def visible_rows(screen: Screen, rates: Rates) -> list[Row]:
    """The rows of the view that match the filter, in order."""
    match screen.view:
        case "brokers":
            rows = broker_rows(rates.now)
        case "topics":
            rows = topic_rows(rates)
        case "groups":
            rows = group_rows(rates)
        case "pipelines":
            rows = pipeline_rows(rates.now)
        case "topic":
            rows = partition_rows(rates, screen.opened)
        case _:
            rows = committed_rows(rates, screen.opened)
    name = COLUMNS[screen.view][0]
    return sort_rows([row for row in rows if screen.filter in str(row[name])], screen.sort)


def render(screen: Screen, rates: Rates, rows: Sequence[Row], height: int, problem: str = "") -> RenderableType:
    """At most `height` lines, but never fewer than one row. The selected row is always among those
    shown. `rows`: the result of `visible_rows`. `problem`: why `rates` are out of date.
    """
    room = max(1, height - RESERVED_LINES)
    selected = min(screen.selected, max(0, len(rows) - 1))
    first = max(0, min(selected - room // 2, len(rows) - room))
    summary = Text(problem, style="bold red", no_wrap=True) if problem else _summary(rates)
    return Group(summary, Text(), _table(screen, rows[first : first + room], selected - first), _footer(screen))


def _summary(rates: Rates) -> Text:
    is_healthy, sentence = summarize_health(rates.now)
    written = sum(rates.bytes_by_topic().values())
    broker_count = len(rates.now.cluster.brokers)
    return Text.assemble(
        ("● ", "green" if is_healthy else "red"),
        (sentence, "" if is_healthy else "bold red"),
        f"   {format_count(broker_count, 'broker')}, {format_count(len(rates.now.topics), 'topic')}, ",
        f"{rates.all_records():,.0f} records/s, {format_size(round(written))}/s",
        no_wrap=True,
        overflow="ellipsis",
    )


def _table(screen: Screen, rows: Sequence[Row], selected: int) -> Table:
    title = f"{screen.view} {screen.opened}" if screen.opened else ""
    table = Table(title=title or None, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS[screen.view]:
        heading = HEADINGS.get(column, column.upper())
        is_number = any(isinstance(row[column], int | float) for row in rows)
        sign = "▾" if column == screen.sort else ""
        table.add_column(heading + sign, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(rows):
        is_problem = bool(row.get("problem") or row.get("outOfSync") or row.get("state") == "down")
        style = " ".join(filter(None, ("reverse" if number == selected else "", "red" if is_problem else "")))
        table.add_row(*(Text(_cell(column, row[column])) for column in COLUMNS[screen.view]), style=style)
    return table


def _footer(screen: Screen) -> Text:
    if screen.is_typing:
        return Text(f"filter: {screen.filter}▏", style="bold", no_wrap=True, overflow="ellipsis")
    filtered = f"filter: {screen.filter} (/ changes, Esc clears)   " if screen.filter else ""
    return Text(filtered + HELP, style="dim", no_wrap=True, overflow="ellipsis")


def _cell(column: str, value: Any) -> str:
    if value is None or column in IDS:
        return format_cell(value)
    if column == "bytes":
        return format_size(value)
    if column == "bytesPerSecond":
        return f"{format_size(round(value))}/s" if value >= 0.5 else ""
    if column.endswith("PerSecond"):
        return f"{value:,.0f}" if value >= 0.5 else ""
    return f"{value:,}" if isinstance(value, int) else format_cell(value) if value else ""
