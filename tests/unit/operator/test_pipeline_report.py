"""The report of a pipeline to brokers."""

from typing import Any

from ottla_broker.wire.pipeline_report import PipelineReport, PipelineView
from ottla_operator.plan.pipeline.report import build_report
from ottla_operator.resources.pipeline import Pipeline
from tests.unit.operator import samples

STEPS = [
    {"name": "late", "sql": "SELECT * FROM flights JOIN airports USING (code)"},
    {"name": "all_rows", "union": ["late", "flights"]},
    {"name": "marked", "python": "steps.py:mark"},
]
RAW = {"topic": "airports", "format": {"type": "raw"}, "mode": "table"}


def pipeline(**spec: Any) -> Pipeline:
    return Pipeline.parse(samples.pipeline(**spec))


def test_report_has_state_and_graph() -> None:
    made = pipeline(
        sources={"flights": {"topic": "flights", "format": {"type": "raw"}}, "airports": RAW},
        transforms=STEPS,
        sinks=[{"from": "marked", "topic": "late"}, {"from": "late", "name": "files", "parquet": {"path": "out"}}],
        deadLetter={"topic": "dead"},
    )
    status = {"state": "Running", "inputRowsPerSecond": 5.0, "lagRecords": 7, "lastError": "x" * 9000}
    report = build_report(made, status, "the driver is running.", "http://127.0.0.1:4040")
    assert report.views == (
        PipelineView("flights", "source", "flights", "stream"),
        PipelineView("airports", "source", "airports", "table"),
        PipelineView("late", "step", "", "sql", ("flights", "airports")),
        PipelineView("all_rows", "step", "", "union", ("late", "flights")),
        PipelineView("marked", "step", "", "python", ("flights", "airports", "late", "all_rows")),
        PipelineView("marked", "sink", "late", "topic", ("marked",)),
        PipelineView("files", "sink", "", "parquet out", ("late",)),
        PipelineView("dead letters", "sink", "dead", "", ("flights", "airports")),
    )
    assert (report.state, report.lag_records, report.group) == ("Running", 7, "ottla-pipeline-hourly")
    assert (report.spark_ui, len(report.error)) == ("http://127.0.0.1:4040", 4096)
    assert report.topics == {"flights", "airports", "late", "dead"}


def test_address_of_a_database_is_not_reported() -> None:
    jdbc = {"url": "jdbc:postgresql://db/x?password=hunter2", "table": "flights"}
    report = build_report(pipeline(sinks=[{"from": "late", "jdbc": jdbc}]), {}, "", "")
    assert report.views[-1] == PipelineView("late", "sink", "", "jdbc flights", ("late",))
    assert "hunter2" not in str(report)


def test_fields_that_are_not_known_are_left_out() -> None:
    assert build_report(pipeline(), {}, "", "") == PipelineReport(
        "Pending", group="ottla-pipeline-hourly", views=build_report(pipeline(), {}, "", "").views
    )
