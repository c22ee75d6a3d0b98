"""State of a running pipeline for the HTTP endpoint, aggregated from its progress log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

STATES: Final = ("starting", "running", "stopping", "stopped", "finished", "suspended", "failed")


@dataclass(slots=True)
class ProgressSnapshot:
    """Updated by the runner's thread and read by others: every value is replaced, never
    modified.
    """

    pipeline: str = ""
    state: str = "starting"
    error: str | None = None
    last_progress: str | None = None
    """Time at which the last batch ended."""
    lag: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    written: int = 0
    dead_letters: int = 0
    rejected: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Rejected rows by view and rule."""
    spark_ui: str | None = None
    """URL of Spark's web UI; None where it is off."""
    has_caught_up: bool = False
    catch_up_seconds_left: float | None = None
    comparisons: Sequence[Mapping[str, Any]] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    """Input rows per second of each query's last batch."""

    def update(self, line: Mapping[str, Any]) -> None:
        """Adds a line of the progress log (see progress.py)."""
        self.pipeline = line["pipeline"]
        self.state = line["state"]
        self.error = line.get("error", self.error)
        self.spark_ui = line.get("sparkUi", self.spark_ui)
        self.comparisons = line.get("comparisons", self.comparisons)
        if "batch" not in line:
            return
        self.has_caught_up = line.get("caughtUp", self.has_caught_up)
        self.catch_up_seconds_left = line.get("catchUpSecondsLeft")
        self.last_progress = line["at"]
        self.rows += line["rows"]
        self.written += line["written"]
        self.dead_letters += line["deadLetters"]
        added = {(view, rule): rows for view, rules in line["rejected"].items() for rule, rows in rules.items()}
        self.rejected = {**self.rejected, **{it: self.rejected.get(it, 0) + rows for it, rows in added.items()}}
        self.rates = {**self.rates, line["query"]: line["inputRowsPerSecond"]}
        self.lag = line["lag"]

    def to_json(self) -> dict[str, Any]:
        """`lagRecords`, `lagSeconds` and `inputRowsPerSecond` are null until a batch has ended;
        `lagSeconds` is also null while no age can be read.
        """
        return {
            "pipeline": self.pipeline,
            "state": self.state,
            "error": self.error,
            "lastProgress": self.last_progress,
            "rows": self.rows,
            "written": self.written,
            "deadLetters": self.dead_letters,
            "rejected": [
                {"view": view, "rule": rule, "rows": rows} for (view, rule), rows in sorted(self.rejected.items())
            ],
            "inputRowsPerSecond": round(sum(self.rates.values()), 3) if self.rates else None,
            "lagRecords": self.lag.get("records"),
            "lagSeconds": self.lag.get("seconds"),
            "sparkUi": self.spark_ui,
            "caughtUp": self.has_caught_up,
            "catchUpSecondsLeft": self.catch_up_seconds_left,
            "comparisons": list(self.comparisons),
        }

    def to_prometheus(self) -> str:
        """Prometheus text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        name = f'pipeline="{self.pipeline}"'
        lines = ["# TYPE ottla_pipeline_state gauge"]
        lines += [f'ottla_pipeline_state{{{name},state="{it}"}} {int(it == self.state)}' for it in STATES]
        counters = {"rows": self.rows, "written": self.written, "dead_letters": self.dead_letters}
        for counter, count in counters.items():
            lines += [
                f"# TYPE ottla_pipeline_{counter}_total counter",
                f"ottla_pipeline_{counter}_total{{{name}}} {count}",
            ]
        if self.rejected:
            lines.append("# TYPE ottla_pipeline_rejected_rows_total counter")
            lines += [
                f'ottla_pipeline_rejected_rows_total{{{name},view="{view}",rule="{rule}"}} {rows}'
                for (view, rule), rows in sorted(self.rejected.items())
            ]
        if (seconds := self.lag.get("seconds")) is not None:
            lines += ["# TYPE ottla_pipeline_lag_seconds gauge", f"ottla_pipeline_lag_seconds{{{name}}} {seconds}"]
        if partitions := self.lag.get("partitions"):
            lines.append("# TYPE ottla_pipeline_lag_records gauge")
            lines += [
                f'ottla_pipeline_lag_records{{{name},topic="{topic}",partition="{partition}"}} {lag["records"]}'
                for topic, of_topic in partitions.items()
                for partition, lag in of_topic.items()
            ]
        return "\n".join(lines) + "\n"
