"""Draws the topic `hourly-delays` as SVG: the mean delay of departures by hour of the day and
airport.

    ottla consume hourly-delays --exit | python -m examples.flights.plot > flights.svg
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from examples.bar_chart import BLUE, GREY, ORANGE, Series, draw_bars

AIRPORTS: Final = {"EWR": ("Newark", GREY), "JFK": ("John F. Kennedy", BLUE), "LGA": ("LaGuardia", ORANGE)}
NEW_YORK: Final = ZoneInfo("America/New_York")


class Delays(msgspec.Struct):
    """A record of `hourly-delays`. `hour`: start of the hour for which the departures were
    scheduled. `mean_delay`: in minutes.
    """

    hour: datetime
    airport: str
    carrier: str
    departures: int
    mean_delay: float


def mean_delays(rows: Iterable[Delays]) -> dict[tuple[str, int], float]:
    """Mean delay in minutes by airport and hour of the day in New York. Of rows of the same hour,
    airport and carrier the last one counts, as in a compacted topic.
    """
    latest = {(row.hour, row.airport, row.carrier): row for row in rows}
    minutes: dict[tuple[str, int], float] = defaultdict(float)
    departures: dict[tuple[str, int], int] = defaultdict(int)
    for _, row in sorted(latest.items()):
        key = row.airport, row.hour.astimezone(NEW_YORK).hour
        minutes[key] += row.mean_delay * row.departures
        departures[key] += row.departures
    return {key: minutes[key] / count for key, count in departures.items()}


def draw(rows: Iterable[Delays]) -> str:
    """The SVG document. A negative mean is drawn as 0."""
    means = mean_delays(rows)
    hours = range(min(hour for _, hour in means), max(hour for _, hour in means) + 1)
    series = [
        Series(f"{name}, minutes", color, [max(0.0, means.get((code, hour), 0.0)) for hour in hours])
        for code, (name, color) in AIRPORTS.items()
    ]
    return draw_bars(series, {index: f"{hour:02}:00" for index, hour in enumerate(hours)}, beside=True)


def main() -> None:
    """Reads JSON lines from standard input and prints the SVG document."""
    rows = [msgspec.json.decode(line, type=Delays) for line in sys.stdin]
    if not rows:
        raise SystemExit("standard input has no record: is the pipeline running?")
    sys.stdout.write(draw(rows))


if __name__ == "__main__":
    main()
