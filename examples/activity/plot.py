"""Draws the topic `top-pages` as SVG: the views of each quarter of an hour, and those of one page.

ottla consume top-pages --exit | python examples/activity/plot.py /news > activity.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final
from xml.sax.saxutils import escape

import msgspec

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 860, 260, 50, 24, 30
QUARTERS: Final = 24 * 4
BAR: Final = (WIDTH - LEFT) / QUARTERS
ALL, ONE, TEXT = "#a8b1ba", "#0b6bcb", "#59636e"


class PageCount(msgspec.Struct):
    """How often a page was viewed."""

    page: str
    views: int


class Quarter(msgspec.Struct):
    """A record of `top-pages`. `top`: the ten most viewed pages, the most viewed first."""

    since: datetime
    views: int
    top: list[PageCount]

    def views_of(self, page: str) -> int:
        """0 for a page that is not one of the ten."""
        return next((each.views for each in self.top if each.page == page), 0)


def draw(quarters: Iterable[Quarter], page: str) -> str:
    """The SVG document. Quarters of the first day only."""
    ordered = sorted(quarters, key=lambda quarter: quarter.since)
    day = [quarter for quarter in ordered if quarter.since.date() == ordered[0].since.date()]
    most = max((quarter.views for quarter in day), default=1)
    body = [*_axes(most), *_legend(page), *(_bars(quarter, page, most) for quarter in day)]
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([start, *body, "</svg>\n"])


def _bars(quarter: Quarter, page: str, most: int) -> str:
    x = LEFT + (quarter.since.hour * 4 + quarter.since.minute // 15) * BAR
    return _bar(x, quarter.views / most, ALL) + _bar(x, quarter.views_of(page) / most, ONE)


def _bar(x: float, share: float, color: str) -> str:
    height = share * (HEIGHT - TOP - BOTTOM)
    y = HEIGHT - BOTTOM - height
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{BAR - 1:.1f}" height="{height:.1f}" fill="{color}"/>'


def _axes(most: int) -> Iterator[str]:
    for hour in range(0, 24, 3):
        yield _text(LEFT + hour * 4 * BAR, HEIGHT - 6, f"{hour:02}:00")
    for share in (0.5, 1.0):
        yield _text(4, HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM) + 4, f"{share * most:,.0f}")


def _legend(page: str) -> Iterator[str]:
    for x, color, label in ((LEFT, ALL, "views in a quarter of an hour"), (LEFT + 240, ONE, f"views of {page}")):
        yield f'<rect x="{x}" y="6" width="12" height="12" fill="{color}"/>'
        yield _text(x + 18, 16, label)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" fill="{TEXT}">{escape(text)}</text>'


def main() -> None:
    """Reads JSON lines from standard input and prints the SVG document."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: plot.py PAGE")
    quarters = [msgspec.json.decode(line, type=Quarter) for line in sys.stdin]
    if not quarters:
        raise SystemExit("standard input has no record: is the pipeline running?")
    sys.stdout.write(draw(quarters, sys.argv[1]))


if __name__ == "__main__":
    main()
