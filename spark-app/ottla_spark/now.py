"""How the pipeline does at this moment, for whoever asks: the sum of what its report has told so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

STATES: Final = ("starting", "running", "stopping", "stopped", "finished", "suspended", "failed")


@dataclass(slots=True)
class Now:
    """Written by the runner's thread, read by others: every value is replaced whole."""

    pipeline: str = ""
    state: str = "starting"
    error: str | None = None
    last_progress: str | None = None
    """When the last batch ended."""
    lag: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    written: int = 0
    dead_letters: int = 0
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows per second that came in, by query, in its last batch."""

    def take(self, line: Mapping[str, Any]) -> None:
        """A line of the report (see progress.py)."""
        self.pipeline = line["pipeline"]
        self.state = line["state"]
        self.error = line.get("error", self.error)
        if "batch" not in line:
            return
        self.last_progress = line["at"]
        self.rows += line["rows"]
        self.written += line["written"]
        self.dead_letters += line["deadLetters"]
        self.rates = {**self.rates, line["query"]: line["inputRowsPerSecond"]}
        self.lag = line["lag"]

    def told(self) -> dict[str, Any]:
        """As an object; `lagRecords` and `lagSeconds` are null as long as no batch has ended."""
        return {
            "pipeline": self.pipeline,
            "state": self.state,
            "error": self.error,
            "lastProgress": self.last_progress,
            "rows": self.rows,
            "written": self.written,
            "deadLetters": self.dead_letters,
            "inputRowsPerSecond": round(sum(self.rates.values()), 3) if self.rates else None,
            "lagRecords": self.lag.get("records"),
            "lagSeconds": self.lag.get("seconds"),
        }

    def figures(self) -> str:
        """For Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        name = f'pipeline="{self.pipeline}"'
        lines = ["# TYPE ottla_pipeline_state gauge"]
        lines += [f'ottla_pipeline_state{{{name},state="{it}"}} {int(it == self.state)}' for it in STATES]
        counted = {"rows": self.rows, "written": self.written, "dead_letters": self.dead_letters}
        for what, count in counted.items():
            lines += [f"# TYPE ottla_pipeline_{what}_total counter", f"ottla_pipeline_{what}_total{{{name}}} {count}"]
        if (seconds := self.lag.get("seconds")) is not None:
            lines += ["# TYPE ottla_pipeline_lag_seconds gauge", f"ottla_pipeline_lag_seconds{{{name}}} {seconds}"]
        if partitions := self.lag.get("partitions"):
            lines.append("# TYPE ottla_pipeline_lag_records gauge")
            lines += [
                f'ottla_pipeline_lag_records{{{name},topic="{topic}",partition="{partition}"}} {of["records"]}'
                for topic, its in partitions.items()
                for partition, of in its.items()
            ]
        return "\n".join(lines) + "\n"
