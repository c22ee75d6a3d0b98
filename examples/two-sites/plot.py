"""Draws the topic `hourly-departures` as SVG: the departures of the year by hour of the day and
airport. Newark is one site, the other two airports are the other one.

    ottla consume hourly-departures --exit | python -m examples.two-sites.plot > two-sites.svg
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from examples.bar_chart import Series, draw_bars
from examples.flights.plot import AIRPORTS, NEW_YORK


class Departures(msgspec.Struct):
    """A record of `hourly-departures`. `hour`: start of the hour for which they were scheduled."""

    hour: datetime
    airport: str
    departures: int


def draw(rows: Iterable[Departures]) -> str:
    """The SVG document. Of rows of the same hour and airport the last one counts, as in a compacted
    topic.
    """
    latest = {(row.hour, row.airport): row for row in rows}
    counts: Counter[tuple[str, int]] = Counter()
    for row in latest.values():
        counts[row.airport, row.hour.astimezone(NEW_YORK).hour] += row.departures
    hours = range(min(hour for _, hour in counts), max(hour for _, hour in counts) + 1)
    series = [Series(name, color, [counts[code, hour] for hour in hours]) for code, (name, color) in AIRPORTS.items()]
    return draw_bars(series, {index: f"{hour:02}:00" for index, hour in enumerate(hours)}, beside=True)


def main() -> None:
    """Reads JSON lines from standard input and prints the SVG document."""
    rows = [msgspec.json.decode(line, type=Departures) for line in sys.stdin]
    if not rows:
        raise SystemExit("standard input has no record: is the pipeline running?")
    sys.stdout.write(draw(rows))


if __name__ == "__main__":
    main()
