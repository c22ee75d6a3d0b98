"""Output of commands: tables for people, JSON or YAML for programs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla_operator.cli.options import OutputFormat

PIPE_WIDTH: Final = 10_000

Row = Mapping[str, Any]
"""Field → value; None: unknown. Names are camelCase, as in the custom resources."""


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], form: OutputFormat) -> None:
    """`columns`: field → heading of the columns of a table. JSON and YAML have all fields."""
    if form is not OutputFormat.table:
        print_document(list(rows), form)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for field, heading in columns.items():
        is_number = any(isinstance(row.get(field), int | float) for row in rows)
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(format_cell(row.get(field))) for field in columns))
    console = Console()
    if console.is_terminal:
        console.print(table, crop=False)
        return
    # In a pipe a row is one line, however long, and has no trailing spaces.
    wide = Console(width=PIPE_WIDTH)
    with wide.capture() as text:
        wide.print(table, crop=False, no_wrap=True)
    print(*(line.rstrip() for line in text.get().splitlines()), sep="\n")


def print_document(value: object, form: OutputFormat) -> None:
    """Prints JSON or YAML."""
    if form is OutputFormat.yaml:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), end="")
    else:
        print(json.dumps(value, indent=2, ensure_ascii=False))


def print_fields(values: Mapping[str, Any]) -> None:
    """Prints one line `name: value` for each value."""
    width = max(map(len, values), default=0) + 2
    for name, value in values.items():
        print(f"{name + ':':<{width}}{format_cell(value)}")


def format_cell(value: object) -> str:
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
