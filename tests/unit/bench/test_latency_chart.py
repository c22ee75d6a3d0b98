"""The plot of latencies under load."""

from xml.etree import ElementTree

import pytest

from bench.chart_style import THEMES, Theme
from bench.latency_chart import draw_latencies, has_latencies

SHARES = (10, 50, 80)
PERCENTILES = ("p50", "p99", "p99.9")


def spread(median: float) -> dict[str, float]:
    return {"min": median, "median": median, "max": median}


RESULTS = {
    "about": {"date": "2026-01-01"},
    "lines": [
        {
            "name": f"latency-under-load-{share}-{percentile}",
            "ottla": spread(share / 100 * 10**number),
            "kafka": spread(share / 10 * 10**number),
        }
        for share in SHARES
        for number, percentile in enumerate(PERCENTILES)
    ],
}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_every_latency_is_a_point_that_lies_higher_the_larger_it_is(theme: Theme) -> None:
    document = ElementTree.fromstring(draw_latencies(RESULTS, theme, "Apache Kafka 4.1.1"))
    circles = document.iter("{http://www.w3.org/2000/svg}circle")
    points = {color: [] for color in (theme.ottla, theme.kafka)}  # type: dict[str, list[tuple[float, float]]]
    for circle in list(circles)[2:]:  # after the legend
        points[circle.attrib["fill"]].append((float(circle.attrib["cx"]), float(circle.attrib["cy"])))
    assert [len(found) for found in points.values()] == [len(SHARES) * len(PERCENTILES)] * 2
    for (x, ottla), (kafka_x, kafka) in zip(points[theme.ottla], points[theme.kafka], strict=True):
        assert x == kafka_x and ottla > kafka  # SVG counts from the top
    height = float(document.attrib["height"])
    assert all(0 < y < height for found in points.values() for _, y in found)


def test_results_without_these_lines_have_no_plot() -> None:
    assert has_latencies(RESULTS)
    assert not has_latencies({"lines": [{"name": "produce-1k"}]})
