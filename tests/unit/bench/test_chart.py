"""The plots in docs/images are those of the newest stored results."""

import json
from xml.etree import ElementTree

import pytest

from bench.chart import DOCS, PLOTS, draw, images, lines_by_plot, newest_results
from bench.chart_style import THEMES
from bench.cluster.lines import LINES as CLUSTER_LINES
from bench.latency_chart import PREFIX as UNDER_LOAD
from bench.lines import LINES
from bench.mirror.lines import LINES as MIRROR_LINES

MEASUREMENTS = DOCS / "measurements"
KINDS = {"one-broker": LINES, "three-brokers": CLUSTER_LINES, "mirrors": MIRROR_LINES}


def test_images_are_drawn_from_the_newest_results() -> None:
    expected = images(MEASUREMENTS)
    found = {path.name: path.read_text() for path in (DOCS / "images").glob("benchmark-*.svg")}
    assert found == expected, "run `make bench-report`"


@pytest.mark.parametrize("kind", KINDS)
def test_stored_results_have_every_line_of_the_benchmark(kind: str) -> None:
    results = json.loads(newest_results(MEASUREMENTS)[kind].read_text())
    assert [line["name"] for line in results["lines"]] == [line.name for line in KINDS[kind]]


def test_every_line_but_those_under_load_is_in_one_plot() -> None:
    lines = [{"name": line.name} for line in LINES]
    plots = lines_by_plot({"lines": lines})
    assert list(plots) == ["", *PLOTS]
    shown = {line["name"] for plot in plots.values() for line in plot}
    assert sum(map(len, plots.values())) == len(shown)
    assert shown == {line.name for line in LINES if not line.name.startswith(UNDER_LOAD)}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_plot_is_well_formed_and_shows_every_line(theme: object) -> None:
    results = json.loads(newest_results(MEASUREMENTS)["one-broker"].read_text())
    document = ElementTree.fromstring(draw(results, theme))  # type: ignore[arg-type]
    shown = " ".join(text.text or "" for text in document.iter("{http://www.w3.org/2000/svg}text"))
    for line in results["lines"]:
        assert line["what"].split(",")[0] in shown
        assert line["unit"] in shown
