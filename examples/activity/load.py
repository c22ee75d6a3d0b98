"""Prints the page views of one day as JSON lines of records, for `ottla produce --lines -`.

    python examples/activity/load.py | ottla produce --lines -

The views are generated, the same ones each time: 20,000 visits of 8,000 visitors. Visits are most
frequent at 20:00 and rarest at 8:00. A visit has six views on average, 40 seconds apart on average.
Pages are chosen by Zipf's law, and one page is chosen for a tenth of the views after 18:00. Lines
are in the order of time.
"""

from __future__ import annotations

import math
import random
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

VISITS: Final = 20_000
VISITORS: Final = 8_000
PAGES: Final = [f"/articles/{number}" for number in range(1, 201)]
NEWS: Final = "/news"
NEWS_SHARE: Final = 0.1
NEWS_FROM: Final = timedelta(hours=18)
MEAN_VIEWS: Final = 6
MEAN_PAUSE_S: Final = 40
BUSIEST_HOUR: Final = 20
DAY: Final = datetime(2026, 6, 1, tzinfo=UTC)


class View(msgspec.Struct):
    """A page that a visitor opened. `at`: UTC."""

    visitor: str
    page: str
    at: datetime


class Line(msgspec.Struct):
    """A record as `ottla produce --lines` reads it."""

    topic: str
    key: str
    value: View


def page_views(visits: int = VISITS, seed: int = 1) -> list[View]:
    """The views of `visits` visits, in the order of time."""
    generator = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(PAGES) + 1)]
    found = []
    for _ in range(visits):
        visitor = f"visitor-{generator.randrange(VISITORS)}"
        at = _start(generator)
        while True:
            is_news = at - DAY >= NEWS_FROM and generator.random() < NEWS_SHARE
            page = NEWS if is_news else generator.choices(PAGES, weights)[0]
            found.append(View(visitor, page, at.replace(microsecond=0)))
            if generator.random() < 1 / MEAN_VIEWS:
                break
            at += timedelta(seconds=generator.expovariate(1 / MEAN_PAUSE_S))
    return sorted(found, key=lambda view: view.at)


def _start(generator: random.Random) -> datetime:
    """A time of the day, by a rate that is a cosine with its maximum at the busiest hour."""
    while True:
        hour = generator.uniform(0, 24)
        if generator.random() < 0.55 + 0.45 * math.cos((hour - BUSIEST_HOUR) * math.pi / 12):
            return DAY + timedelta(hours=hour)


def main() -> None:
    """Prints every record."""
    encoder = msgspec.json.Encoder()
    for view in page_views():
        sys.stdout.buffer.write(encoder.encode(Line("page-views", view.visitor, view)) + b"\n")


if __name__ == "__main__":
    main()
