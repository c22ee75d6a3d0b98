"""Latency under load as a plot: milliseconds on a logarithmic scale, by the share of the rate that
Apache Kafka sustains.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.chart_style import Theme, svg_document, text

PREFIX: Final = "latency-under-load-"
PERCENTILES: Final = {"p50": "median", "p99": "99th percentile", "p99.9": "99.9th percentile"}
PANEL_WIDTH: Final = 270
PANEL_GAP: Final = 25
LEFT, TOP, PLOT_HEIGHT = 46, 60, 210
MARK_RADIUS: Final = 4
Values = Mapping[str, Mapping[int, float]]
"""Side ("ottla", "kafka") → share of the rate in percent → milliseconds."""


def has_latencies(results: Mapping[str, Any]) -> bool:
    return any(line["name"].startswith(PREFIX) for line in results["lines"])


def draw_latencies(results: Mapping[str, Any], theme: Theme, other: str) -> str:
    """The SVG document: a panel for each percentile, all with one scale. `other`: name and version
    of the other side.
    """
    panels = {name: _values(results, name) for name in PERCENTILES}
    every = [value for sides in panels.values() for side in sides.values() for value in side.values()]
    decades = range(math.floor(math.log10(min(every))), math.ceil(math.log10(max(every))) + 1)
    body = [*_legend(theme, other)]
    for number, (name, title) in enumerate(PERCENTILES.items()):
        body += _panel(LEFT + number * (PANEL_WIDTH + PANEL_GAP), title, panels[name], decades, theme)
    height = TOP + PLOT_HEIGHT + 60
    brokers = "three brokers, replication factor 3" if "brokers" in results["about"] else "one broker"
    foot = f"1 KiB, six partitions, {brokers}, acks=all; from when a record is due until a consumer has it"
    body.append(text(LEFT, height - 10, f"{foot}. {results['about']['date']}.", theme.muted, size=11))
    width = LEFT + len(PERCENTILES) * (PANEL_WIDTH + PANEL_GAP)
    return svg_document(width, height, f"Latency under load: Ottla and {other}", body)


def _values(results: Mapping[str, Any], percentile: str) -> Values:
    found: dict[str, dict[int, float]] = {"ottla": {}, "kafka": {}}
    for line in results["lines"]:
        if line["name"].startswith(PREFIX) and line["name"].endswith(f"-{percentile}"):
            share = int(line["name"].removeprefix(PREFIX).partition("-")[0])
            for side in found:
                found[side][share] = line[side]["median"]
    return found


def _legend(theme: Theme, other: str) -> Iterator[str]:
    for number, (name, color) in enumerate((("Ottla", theme.ottla), (other, theme.kafka))):
        x = LEFT + number * 90
        yield f'<circle cx="{x + 5}" cy="14" r="{MARK_RADIUS}" fill="{color}"/>'
        yield text(x + 16, 18, name, theme.text)


def _panel(x: int, title: str, sides: Values, decades: range, theme: Theme) -> Iterator[str]:
    def at(share: int, milliseconds: float) -> tuple[float, float]:
        part = (math.log10(milliseconds) - decades[0]) / (decades[-1] - decades[0])
        return x + share / 100 * PANEL_WIDTH, TOP + PLOT_HEIGHT * (1 - part)

    yield text(x, TOP - 12, title, theme.text, weight="bold")
    for decade in decades:
        _, y = at(0, 10.0**decade)
        yield f'<line x1="{x}" x2="{x + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{theme.muted}" opacity="0.3"/>'
        if x == LEFT:
            yield text(0, y + 4, f"{10.0**decade:g} ms", theme.muted, size=11)
    for share in next(iter(sides.values())):
        yield text(x + share / 100 * PANEL_WIDTH - 10, TOP + PLOT_HEIGHT + 18, f"{share} %", theme.muted, size=11)
    for side, color in (("kafka", theme.kafka), ("ottla", theme.ottla)):
        points = [at(share, value) for share, value in sorted(sides[side].items())]
        line = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
        yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>'
        for (left, top), (_, value) in zip(points, sorted(sides[side].items()), strict=True):
            yield f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{MARK_RADIUS}" fill="{color}"/>'
            yield text(left - 14, top - 9, f"{value:.3g}", theme.text, size=11)
