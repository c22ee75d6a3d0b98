"""`python -m bench.chart` (`make bench-report`): draws the stored results of the benchmarks as SVG.

docs/measurements holds results that the benchmarks have written to `build/`, with `date` and
`repeats` added to `about`, under names like `2026-11-22-one-broker.json`. The newest file of each
kind becomes `docs/images/benchmark-<kind>-light.svg` and `-dark.svg`. Each line of the results, one
measured quantity, is a row of bars. Lines about many connections and about special loads have plots
of their own, `benchmark-<kind>-connections-…` and `-special-…`. So have latencies under load,
`-under-load-…`.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.chart_style import THEMES, Theme, svg_document, text
from bench.latency_chart import PREFIX as UNDER_LOAD
from bench.latency_chart import draw_latencies, has_latencies

DOCS = Path(__file__).parent.parent / "docs"
Results = Mapping[str, Any]

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 860, 350, 150
BAR_WIDTH = WIDTH - LABEL_WIDTH - VALUE_WIDTH
ROW_HEIGHT, BAR_HEIGHT, LINE_HEIGHT = 46, 13, 16
LABEL_CHARACTERS, FOOTER_CHARACTERS = 50, 125
PLOTS = {
    "-connections": ("many-producers-", "two-workers-", "connections-", "many-consumers-", "group-of-200-"),
    "-special": ("wide-", "tls-", "sasl-", "cold-read-", "recover", "compaction-", "floor-"),
}
"""Suffix of a plot's file name → prefixes of the names of the lines in it."""
GROUPS = {"higher": "Higher is better", "lower": "Lower is better"}


def newest_results(folder: Path) -> dict[str, Path]:
    """The newest file of each kind of result. Names start with a date, so they sort by it."""
    return {path.stem[len("2026-11-22-") :]: path for path in sorted(folder.glob("*.json"))}


def lines_by_plot(results: Results) -> dict[str, list[Mapping[str, Any]]]:
    """The lines of each plot of bars by its suffix; "" is the plot of all that have no other."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in results["lines"]:
        if not line["name"].startswith(UNDER_LOAD):
            suffix = next((suffix for suffix, prefixes in PLOTS.items() if line["name"].startswith(prefixes)), "")
            found.setdefault(suffix, []).append(line)
    return found


def draw(results: Results, theme: Theme) -> str:
    """The SVG document of one benchmark: for each line a bar for each side that was measured, each
    row to its own scale.
    """
    about = results["about"]
    body: list[str] = [*_legend(about, theme)]
    y = 52
    for better, heading in GROUPS.items():
        lines = [line for line in results["lines"] if line["better"] == better]
        if lines:
            body.append(text(0, y + 12, heading, theme.text, weight="bold"))
            y += 24
        for line in lines:
            body += _row(line, y, theme)
            y += ROW_HEIGHT
        y += 10
    for line in textwrap.wrap(_footer(about), FOOTER_CHARACTERS):
        body.append(text(0, y + 8, line, theme.muted, size=11))
        y += LINE_HEIGHT
    title = f"Ottla and {_other(about)}, measured on {about['date']}"
    return svg_document(WIDTH, y + 8, title, body)


def _other(about: Mapping[str, str]) -> str:
    """The other side's name and version."""
    version = about["Apache Kafka"].partition(",")[0]
    return f"{'MirrorMaker 2' if 'MirrorMaker' in about.get('targets', '') else 'Apache Kafka'} {version}"


def _legend(about: Mapping[str, str], theme: Theme) -> Iterator[str]:
    x = LABEL_WIDTH
    for name, color in (("Ottla", theme.ottla), (_other(about), theme.kafka)):
        yield _bar(x, 14, 13, color)
        yield text(x + 19, 25, name, theme.text)
        x += 90


def _row(line: Mapping[str, Any], y: int, theme: Theme) -> Iterator[str]:
    label = textwrap.wrap(line["what"], LABEL_CHARACTERS)[:2]
    for number, part in enumerate(label):
        yield text(0, y + 12 + number * LINE_HEIGHT, part, theme.text)
    sides = [(line[side], color) for side, color in (("ottla", theme.ottla), ("kafka", theme.kafka)) if line[side]]
    scale = BAR_WIDTH / max(spread["max"] for spread, _ in sides)
    for number, (spread, color) in enumerate(sides):
        top = y + number * (BAR_HEIGHT + 3)
        yield _bar(LABEL_WIDTH, top, spread["median"] * scale, color)
        if spread["min"] != spread["max"]:
            yield _whisker(spread["min"] * scale, spread["max"] * scale, top + BAR_HEIGHT / 2, theme.muted)
        end = LABEL_WIDTH + spread["max"] * scale + 6
        yield text(end, top + 11, f"{_number(spread['median'])} {line['unit']}", theme.text, size=12)


def _footer(about: Mapping[str, str]) -> str:
    repeats = int(about["repeats"])
    shown = f"Bars are medians of {repeats} runs, thin lines reach from minimum to maximum. " if repeats > 1 else ""
    machine = ", ".join(about[key] for key in ("processor", "memory", "system"))
    versions = f"Ottla {about['Ottla']} on Python {about['Python']}; {about['Java']}"
    return f"{shown}Each row has its own scale. {about['date']}, {machine}; {versions}."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bar(x: float, y: float, width: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{BAR_HEIGHT}" rx="2" fill="{color}"/>'


def _whisker(start: float, end: float, y: float, color: str) -> str:
    x = LABEL_WIDTH
    return (
        f'<line x1="{x + start:.1f}" x2="{x + end:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{color}" stroke-width="1.5"/>'
    )


def images(folder: Path) -> dict[str, str]:
    """File name to SVG document, for the newest results in `folder`."""
    documents: dict[str, str] = {}
    for kind, path in newest_results(folder).items():
        results = json.loads(path.read_text())
        for name, theme in THEMES.items():
            for suffix, lines in lines_by_plot(results).items():
                documents[f"benchmark-{kind}{suffix}-{name}.svg"] = draw({**results, "lines": lines}, theme)
            if has_latencies(results):
                latencies = draw_latencies(results, theme, _other(results["about"]))
                documents[f"benchmark-{kind}-under-load-{name}.svg"] = latencies
    return documents


def main() -> None:
    folder = DOCS / "images"
    folder.mkdir(exist_ok=True)
    for name, document in images(DOCS / "measurements").items():
        (folder / name).write_text(document)
        print(folder / name)


if __name__ == "__main__":
    main()
