"""A report of a run as one HTML file: rates, lag, and rejected rows by rule, as plots over time.

The file needs no other files and no network. While the pipeline runs, it is written again after
batches, at most every five seconds, and when the pipeline's state changes. A browser shows the new
content when it loads the file again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from ottla_spark.progress_snapshot import ProgressSnapshot

Points = list[tuple[float, float]]
"""Seconds since the start of the run, and the value."""

WRITE_INTERVAL_S: Final = 5.0
MAX_BATCHES: Final = 2000
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 220, 64, 24, 10
COLORS: Final = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce", "#b91c1c", "#0f766e")
STYLE: Final = """\
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
.grid { stroke: currentColor; opacity: .2; } .error { color: #b91c1c; font-weight: 600; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }
.keys span { margin-right: 1.2em; }
"""


@dataclass(slots=True)
class RunReport:
    """Receives the lines of the progress log (see progress.py). Of more than MAX_BATCHES batches,
    older ones are thinned out. `totals` counts all of them.
    """

    path: Path
    lines: list[Mapping[str, Any]] = field(default_factory=list)
    totals: ProgressSnapshot = field(default_factory=ProgressSnapshot)
    batches: int = 0
    _written_s: float = 0.0

    def update(self, line: Mapping[str, Any]) -> None:
        self.totals.update(line)
        if "batch" in line:
            self.batches += 1
            line = {**line, "rejectedSoFar": self.totals.rejected}
        self.lines.append(line)
        if len(self.lines) > MAX_BATCHES:
            older = self.lines[: MAX_BATCHES // 2]
            self.lines[: MAX_BATCHES // 2] = [it for at, it in enumerate(older) if "batch" not in it or at % 2]
        if "batch" not in line or time.monotonic() - self._written_s >= WRITE_INTERVAL_S:
            self._written_s = time.monotonic()
            self.path.write_text(render_report(self))


def render_report(report: RunReport) -> str:
    """The HTML document. The report has at least one line."""
    lines = report.lines
    title = f"Pipeline {lines[0]['pipeline']}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *_summary(report),
            *_plots(lines),
            "</body></html>",
            "",
        ]
    )


def _summary(report: RunReport) -> Iterator[str]:
    totals = report.totals
    rows: list[tuple[str, str]] = [
        ("State", totals.state),
        ("From", report.lines[0]["at"]),
        ("To", report.lines[-1]["at"]),
        ("Batches", f"{report.batches:,}"),
        ("Rows read", f"{totals.rows:,}"),
        ("Rows written", f"{totals.written:,}"),
        ("Dead letters", f"{totals.dead_letters:,}"),
    ]
    yield "<table>"
    yield from (f'<tr><th>{name}</th><td class="number">{escape(value)}</td></tr>' for name, value in rows)
    yield "</table>"
    if totals.error is not None:
        yield f'<p class="error">{escape(totals.error)}</p>'


def _plots(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    start = _seconds(lines[0])
    batches = [(_seconds(it) - start, it) for it in lines if "batch" in it]
    if not batches:
        yield "<p>No batch has ended.</p>"
        return
    queries = sorted({it["query"] for _, it in batches})
    for heading, key in (("Rows read per second", "processedRowsPerSecond"), ("Batch duration in ms", "batchMs")):
        yield from _plot(
            heading, {name: [(at, it[key]) for at, it in batches if it["query"] == name] for name in queries}
        )
    for heading, key in (("Lag in records", "records"), ("Lag in seconds", "seconds")):
        known = [(at, it["lag"][key]) for at, it in batches if it["lag"].get(key) is not None]
        yield from _plot(heading, {"all topics": known})
    yield from _plot("Rejected rows by rule", rejected_by_rule(batches))


def rejected_by_rule(batches: Sequence[tuple[float, Mapping[str, Any]]]) -> dict[str, Points]:
    """Rows rejected since the start, by rule as `view.rule`."""
    series: dict[str, Points] = {}
    for at, batch in batches:
        for (view, rule), rows in batch["rejectedSoFar"].items():
            series.setdefault(f"{view}.{rule}", []).append((at, rows))
    return series


def _plot(heading: str, series: Mapping[str, Points]) -> Iterator[str]:
    drawn = {name: points for name, points in series.items() if points}
    if not drawn:
        return
    end = max(at for points in drawn.values() for at, _ in points) or 1.0
    top = _round_up(max(value for points in drawn.values() for _, value in points))
    scale_x, scale_y = (WIDTH - LEFT) / end, (HEIGHT - TOP - BOTTOM) / top
    yield f"<h2>{heading}</h2>"
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{heading}">'
    for part in range(5):
        value, y = top * part / 4, HEIGHT - BOTTOM - top * part / 4 * scale_y
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
    for share in (0.0, 0.5, 1.0):
        anchor = ("start", "middle", "end")[int(share * 2)]
        x = LEFT + share * (WIDTH - LEFT)
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{end * share:,.0f} s</text>'
    for (name, points), color in zip(drawn.items(), _colors(len(drawn)), strict=True):
        path = " ".join(f"{LEFT + at * scale_x:.1f},{HEIGHT - BOTTOM - value * scale_y:.1f}" for at, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"><title>{escape(name)}</title>'
        yield "</polyline>"
    yield "</svg>"
    keys = zip(drawn, _colors(len(drawn)), strict=True)
    spans = (f'<span><i class="key" style="background:{color}"></i>{escape(name)}</span>' for name, color in keys)
    yield f'<div class="keys">{"".join(spans)}</div>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _colors(count: int) -> list[str]:
    return [COLORS[number % len(COLORS)] for number in range(count)]


def _round_up(value: float) -> float:
    """The next number of the form 1, 2, 4 or 8 × 10ⁿ, at least 0.1; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 0.1
    return next(power * factor for factor in (1, 2, 4, 8, 10) if power * factor >= value)


def _seconds(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()
