"""The results of a benchmark as a table, a Markdown page and a JSON file."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.lines import Line


@dataclass(frozen=True)
class Spread:
    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(min(values), statistics.median(values), max(values))

    def __str__(self) -> str:
        return " ".join(_format_number(value) for value in (self.min, self.median, self.max))


@dataclass(frozen=True)
class LineResult:
    """The result of one line. `is_reached` is None if Ottla was not measured, or if a ratio is
    required and there is none: Kafka was not measured, or its median is 0.
    """

    line: Line
    ottla: Spread | None
    kafka: Spread | None

    @property
    def ratio(self) -> float | None:
        if self.ottla is None or self.kafka is None or not self.kafka.median:
            return None
        return self.ottla.median / self.kafka.median

    @property
    def is_reached(self) -> bool | None:
        if self.ottla is None or (self.line.ratio is not None and self.ratio is None):
            return None
        bounded = self.line.at_most is None or self.ottla.median <= self.line.at_most
        if self.line.ratio is None or self.ratio is None:
            return bounded
        return bounded and (
            self.ratio >= self.line.ratio if self.line.better == "higher" else self.ratio <= self.line.ratio
        )


def evaluate_lines(lines: Sequence[Line], measured: Mapping[str, Mapping[str, Sequence[float]]]) -> list[LineResult]:
    """`measured`: side, then line, then values."""

    def spread(side: str, line: Line) -> Spread | None:
        values = measured.get(side, {}).get(line.name)
        return Spread.of(values) if values else None

    return [LineResult(line, spread("ottla", line), spread("kafka", line)) for line in lines]


def print_table(console: Console, results: Sequence[LineResult], repeats: int) -> None:
    table = Table(title=f"Ottla and Apache Kafka: min, median, max of at most {repeats} turns", title_justify="left")
    for heading in ("line", "what", "unit"):
        table.add_column(heading, overflow="fold")
    for heading in ("Ottla", "Kafka", "ratio", "required", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        line = result.line
        table.add_row(
            line.name,
            line.what,
            line.unit,
            str(result.ottla or "–"),
            str(result.kafka or "–"),
            "–" if result.ratio is None else f"{result.ratio:.2f} ×",
            _requirement(line),
            {True: "[green]reached", False: "[red]missed", None: "–"}[result.is_reached],
        )
    console.print(table)


def to_markdown(about: Mapping[str, str], results: Sequence[LineResult], repeats: int) -> str:
    """A Markdown page with the machine (`about`) and the table. `repeats`: the most values that a
    line has.
    """
    rows = [f"- {what}: {fact}" for what, fact in about.items()]
    rows += [
        "",
        f"Min, median and max of at most {repeats} turns.",
        "",
        "| what | unit | Ottla | Kafka | ratio | required |",
    ]
    rows += ["|---|---|---|---|---|---|"]
    for result in results:
        line = result.line
        ratio = "–" if result.ratio is None else f"{result.ratio:.2f} ×"
        cells = (line.what, line.unit, result.ottla or "–", result.kafka or "–", ratio, _requirement(line))
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def write_json(
    path: Path, about: Mapping[str, str], commands: Sequence[str], measured: object, results: Sequence[LineResult]
) -> None:
    rows = [
        asdict(result.line)
        | {
            "ottla": _spread_as_dict(result.ottla),
            "kafka": _spread_as_dict(result.kafka),
            "ratio": result.ratio,
            "reached": result.is_reached,
        }
        for result in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"about": about, "lines": rows, "values": measured, "commands": commands}, indent=2) + "\n"
    )


def _spread_as_dict(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else asdict(spread)


def _requirement(line: Line) -> str:
    sign = "≥" if line.better == "higher" else "≤"
    parts = [] if line.ratio is None else [f"{sign} {line.ratio:.2f} ×"]
    if line.at_most is not None:
        parts.append(f"≤ {line.at_most:g} {line.unit}")
    return ", ".join(parts)


def _format_number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
