"""Draws the topic `top-pages` as SVG: the views of each quarter of an hour, and those of one page.

ottla consume top-pages --exit | python -m examples.activity.plot /news > activity.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from examples.bar_chart import BLUE, GREY, Series, draw_bars

QUARTERS: Final = 24 * 4


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
    total, of_page = [0] * QUARTERS, [0] * QUARTERS
    for quarter in ordered:
        if quarter.since.date() == ordered[0].since.date():
            index = quarter.since.hour * 4 + quarter.since.minute // 15
            total[index], of_page[index] = quarter.views, quarter.views_of(page)
    series = (Series("views in a quarter of an hour", GREY, total), Series(f"views of {page}", BLUE, of_page))
    return draw_bars(series, {hour * 4: f"{hour:02}:00" for hour in range(0, 24, 3)}, beside=False)


def main() -> None:
    """Reads JSON lines from standard input and prints the SVG document."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m examples.activity.plot PAGE")
    quarters = [msgspec.json.decode(line, type=Quarter) for line in sys.stdin]
    if not quarters:
        raise SystemExit("standard input has no record: is the pipeline running?")
    sys.stdout.write(draw(quarters, sys.argv[1]))


if __name__ == "__main__":
    main()
