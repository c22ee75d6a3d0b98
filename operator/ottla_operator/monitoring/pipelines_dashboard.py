"""Dashboard: rows, lag and state of pipelines."""

from typing import Final

from ottla_operator.monitoring.expressions import rate, sum_of
from ottla_operator.monitoring.panels import TABLE, Dashboard, Panel, PanelRow, Variable

BY_PIPELINE: Final = 'namespace="$namespace",pipeline=~"$pipeline"'
PIPELINES_DASHBOARD: Final = Dashboard(
    "ottla-pipelines",
    "Ottla / Pipelines",
    BY_PIPELINE,
    (
        Variable("namespace", "ottla_pipeline_state"),
        Variable("pipeline", 'ottla_pipeline_state{namespace="$namespace"}', has_all=True),
    ),
    (
        PanelRow(
            "Pipelines",
            (
                Panel(
                    "State",
                    (("sum by (pipeline, state) (ottla_pipeline_state{@} == 1)", "{{pipeline}} {{state}}"),),
                    TABLE,
                ),
                Panel("Rows read", ((rate("ottla_pipeline_rows_total", "pipeline"), "{{pipeline}}"),), unit="cps"),
                Panel(
                    "Rows written", ((rate("ottla_pipeline_written_total", "pipeline"), "{{pipeline}}"),), unit="cps"
                ),
                Panel(
                    "Dead letters",
                    ((rate("ottla_pipeline_dead_letters_total", "pipeline"), "{{pipeline}}"),),
                    unit="cps",
                ),
                Panel(
                    "Rejected rows by rule",
                    ((rate("ottla_pipeline_rejected_rows_total", "pipeline, view, rule"), "{{view}} {{rule}}"),),
                    unit="cps",
                ),
                Panel(
                    "Lag in records",
                    ((sum_of("ottla_pipeline_lag_records", "pipeline, topic"), "{{pipeline}} {{topic}}"),),
                ),
                Panel(
                    "Lag in seconds", (("max by (pipeline) (ottla_pipeline_lag_seconds{@})", "{{pipeline}}"),), unit="s"
                ),
            ),
        ),
    ),
)
