"""Plots of the examples: what they count, and that the documents are SVG."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

from examples.activity import plot as activity
from examples.bar_chart import GREY, Series, draw_bars
from examples.cdc import plot as cdc
from examples.cdc.compare import Order
from examples.flights import plot as flights
from examples.messaging import plot as messaging

IMAGES = Path(__file__).parents[3] / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"


def bars(document: str) -> list[tuple[str, float]]:
    """Color and height of each bar. The legend's squares are 12 high and wide."""
    found = ElementTree.fromstring(document).iter(f"{SVG}rect")
    return [(it.attrib["fill"], float(it.attrib["height"])) for it in found if it.attrib["width"] != "12"]


def test_bars_are_as_high_as_their_values() -> None:
    document = draw_bars([Series("a & b", GREY, [0, 5, 10])], {1: "<one>"}, beside=False)
    assert [height for _, height in bars(document)] == [0, 103, 206]
    texts = [it.text for it in ElementTree.fromstring(document).iter(f"{SVG}text")]
    assert {"a & b", "<one>", "5", "10"} <= set(texts)
    assert bars(draw_bars([Series("nothing yet", GREY, [])], {}, beside=True)) == []


def test_delays_are_weighted_by_departures_in_the_time_of_new_york() -> None:
    winter, summer = datetime(2013, 1, 1, 13, tzinfo=UTC), datetime(2013, 7, 1, 12, tzinfo=UTC)
    rows = [
        flights.Delays(winter, "JFK", "AA", 1, 99.0),  # replaced by the last row of the same key
        flights.Delays(winter, "JFK", "AA", 3, 10.0),
        flights.Delays(summer, "JFK", "AA", 1, 30.0),
        flights.Delays(summer, "LGA", "AA", 1, -5.0),
    ]
    assert flights.mean_delays(rows) == {("JFK", 8): 15.0, ("LGA", 8): -5.0}
    assert [height for _, height in bars(flights.draw(rows))] == [0, 206, 0]


def test_views_of_the_first_day_are_drawn_behind_those_of_the_page() -> None:
    day = datetime(2026, 6, 1, tzinfo=UTC)
    quarters = [
        activity.Quarter(day.replace(hour=1, minute=15), 4, [activity.PageCount("/news", 1)]),
        activity.Quarter(day.replace(day=2), 99, []),
    ]
    drawn = bars(activity.draw(quarters, "/news"))
    assert len(drawn) == 2 * 24 * 4
    assert [height for _, height in drawn if height] == [206.0, 51.5]


def test_the_images_of_the_documentation_are_bar_charts() -> None:
    least_bars = {"activity": 50, "flights": 50, "cdc": 15, "messaging": 6, "monitoring": 16, "two-sites": 50}
    for name, least in least_bars.items():
        assert len(bars((IMAGES / f"{name}.svg").read_text())) >= least


def test_departures_of_an_airport_are_added_up_by_the_hour_in_new_york() -> None:
    two_sites = import_module("examples.two-sites.plot")
    winter, summer = datetime(2013, 1, 1, 13, tzinfo=UTC), datetime(2013, 7, 1, 12, tzinfo=UTC)
    rows = [
        two_sites.Departures(winter, "EWR", 9),  # replaced by the last row of the same key
        two_sites.Departures(winter, "EWR", 1),
        two_sites.Departures(summer, "EWR", 3),
        two_sites.Departures(summer, "JFK", 2),
    ]
    assert [height for _, height in bars(two_sites.draw(rows))] == [206, 103, 0]


def test_jobs_and_failed_attempts_of_each_worker_are_counted() -> None:
    lines = ["job 1 done by 7", "attempt 1 of job 10 failed at 8", "job 10 done by 7", "job 3 done by 8", "noise"]
    assert [height for _, height in bars(messaging.draw(lines))] == [206, 103, 0, 103]


def test_amounts_of_orders_are_added_up_by_customer_and_status() -> None:
    rows = [("Bakery", "paid", 10), ("Bakery", "paid", 5), ("Zürich", "shipped", 30)]
    orders = [Order(number, *row[:2], Decimal(row[2]), None, None) for number, row in enumerate(rows)]
    assert [height for _, height in bars(cdc.draw(orders))] == [0, 0, 103, 0, 0, 206]
