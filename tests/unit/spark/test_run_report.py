"""The report of a run: what the HTML file shows, and that it stays small."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from ottla_spark import run_report
from ottla_spark.run_report import RunReport, rejected_by_rule, render_report

STATE = {"at": "2026-11-26T10:00:00.000Z", "pipeline": "delays", "state": "starting"}


def batch(second: int, **fields: Any) -> dict[str, Any]:
    """A line of the progress log, written at this second."""
    lag: dict[str, Any] = {"records": 100 - second, "seconds": None if second == 1 else 0.5, "partitions": {}}
    rejected = {"flights": {"undecoded": 1}, "departures": {"sane": 0}}
    shown = {
        "query": "q",
        "batch": second,
        "rows": 10,
        "written": 4,
        "deadLetters": 1,
        "rejected": rejected,
        "lag": lag,
    }
    rates = {"inputRowsPerSecond": 9.0, "processedRowsPerSecond": 12.5, "batchMs": 800, "watermark": None}
    return {**STATE, "state": "running", "at": f"2026-11-26T10:00:{second:02d}.000Z", **shown, **rates, **fields}


def report_of(*lines: dict[str, Any], folder: Path) -> RunReport:
    report = RunReport(folder / "report.html")
    for line in lines:
        report.update(line)
    return report


def test_each_figure_is_plotted_and_totals_and_the_error_are_shown(tmp_path: Path) -> None:
    failure = {**STATE, "state": "failed", "error": "no <disk>"}
    text = render_report(report_of(STATE, batch(1), batch(2), failure, folder=tmp_path))
    document = ET.fromstring(text.partition("<body>")[2].partition("</body>")[0].join(("<body>", "</body>")))
    cells = {row[0].text: row[1].text for row in document.iter("tr")}
    assert (cells["State"], cells["Rows read"], cells["Rows written"], cells["Dead letters"]) == (
        "failed",
        "20",
        "8",
        "2",
    )
    plots = {plot.get("aria-label"): len(plot.findall("polyline")) for plot in document.iter("svg")}
    assert plots == {
        "Rows read per second": 1,
        "Batch duration in ms": 1,
        "Lag in records": 1,
        "Lag in seconds": 1,
        "Rejected rows by rule": 2,
    }
    assert document.findtext("p") == "no <disk>"


def test_labels_of_an_axis_have_no_exponent(tmp_path: Path) -> None:
    assert ">75</text>" in render_report(report_of(STATE, batch(1), batch(2), folder=tmp_path))
    text = render_report(report_of(STATE, batch(1, processedRowsPerSecond=30_000.0), folder=tmp_path))
    assert "e+" not in text


def test_rejected_rows_add_up_by_rule(tmp_path: Path) -> None:
    _, one, two = report_of(STATE, batch(1), batch(2), folder=tmp_path).lines
    assert rejected_by_rule([(1.0, one), (2.0, two)]) == {
        "flights.undecoded": [(1.0, 1), (2.0, 2)],
        "departures.sane": [(1.0, 0), (2.0, 0)],
    }


def test_a_run_without_batches_has_a_report(tmp_path: Path) -> None:
    assert "No batch has ended." in render_report(report_of(STATE, folder=tmp_path))


def test_the_report_of_a_long_run_stays_small_and_counts_every_batch(tmp_path: Path) -> None:
    report = RunReport(tmp_path / "report.html")
    report.update(STATE)
    for number in range(3 * run_report.MAX_BATCHES):
        report.update(batch(number % 60, batch=number))
    assert len(report.lines) <= run_report.MAX_BATCHES
    assert report.lines[0] == STATE
    report.update({**STATE, "state": "stopped"})
    text = report.path.read_text()
    assert ">stopped<" in text
    assert f">{30 * run_report.MAX_BATCHES:,}<" in text, "rows read"
    assert report.lines[-2]["rejectedSoFar"]["flights", "undecoded"] == 3 * run_report.MAX_BATCHES
