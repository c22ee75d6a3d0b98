"""Results as a table for people, or as JSON or YAML for programs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla_operator.cli.options import Format

IN_A_PIPE = 10_000  # characters

Row = Mapping[str, Any]
"""One thing: field → value. Names are camelCase, as in our resources."""


def show(rows: Sequence[Row], columns: Mapping[str, str], form: Format) -> None:
    """A list of things. `columns`: field → heading of those that the table shows; JSON and YAML have all fields."""
    if form is not Format.table:
        emit(list(rows), form)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for field, heading in columns.items():
        numbers = any(isinstance(row.get(field), int | float) for row in rows)
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row.get(field))) for field in columns))
    console = Console()
    if console.is_terminal:
        console.print(table, crop=False)
        return
    # In a pipe there is no width to keep to: a row is a line, and ends with its last word.
    wide = Console(width=IN_A_PIPE)
    with wide.capture() as written:
        wide.print(table, crop=False, no_wrap=True)
    print(*(line.rstrip() for line in written.get().splitlines()), sep="\n")


def emit(value: object, form: Format) -> None:
    """Anything, as JSON or YAML."""
    if form is Format.yaml:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), end="")
    else:
        print(json.dumps(value, indent=2, ensure_ascii=False))


def facts(values: Mapping[str, Any]) -> None:
    """One thing's fields for people, one a line."""
    width = max(map(len, values), default=0) + 2
    for name, value in values.items():
        print(f"{name + ':':<{width}}{cell(value)}")


def cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case float():
            return f"{value:g}"
        case list() | tuple() | set() | frozenset():
            return ",".join(map(str, value)) or "-"
        case _:
            return str(value)
