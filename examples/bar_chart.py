"""Bar charts of the examples' results, as SVG documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 860, 260, 50, 24, 30
GAP: Final = 1.0
GREY, BLUE, ORANGE, TEXT = "#a8b1ba", "#0b6bcb", "#d9730d", "#59636e"


@dataclass(frozen=True, slots=True)
class Series:
    """One bar for each value, from 0 up. `label`: its text in the legend."""

    label: str
    color: str
    values: Sequence[float]


def draw_bars(series: Sequence[Series], marks: Mapping[int, str], *, beside: bool) -> str:
    """The SVG document. All series have equally many values.

    `marks`: texts below the bars, by index. `beside`: bars of one index are beside each other,
    otherwise later series are drawn over earlier ones.
    """
    largest = max((value for one in series for value in one.values), default=0.0) or 1.0
    count = max((len(one.values) for one in series), default=0) or 1
    slot = (WIDTH - LEFT) / count
    body = [*_axes(largest, marks, slot), *_legend(series)]
    for number, one in enumerate(series):
        width = (slot - GAP) / (len(series) if beside else 1)
        first = LEFT + (number * width if beside else 0.0)
        body += [
            _bar(first + index * slot, width, value / largest, one.color) for index, value in enumerate(one.values)
        ]
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([start, *body, "</svg>\n"])


def _bar(x: float, width: float, share: float, color: str) -> str:
    height = share * (HEIGHT - TOP - BOTTOM)
    y = HEIGHT - BOTTOM - height
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def _axes(largest: float, marks: Mapping[int, str], slot: float) -> Iterator[str]:
    for index, text in marks.items():
        yield _text(LEFT + index * slot, HEIGHT - 6, text)
    for share in (0.5, 1.0):
        yield _text(4, HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM) + 4, f"{share * largest:,.0f}")


def _legend(series: Sequence[Series]) -> Iterator[str]:
    x = float(LEFT)
    for one in series:
        yield f'<rect x="{x:.0f}" y="6" width="12" height="12" fill="{one.color}"/>'
        yield _text(x + 18, 16, one.label)
        x += 48 + 7 * len(one.label)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" fill="{TEXT}">{escape(text)}</text>'
