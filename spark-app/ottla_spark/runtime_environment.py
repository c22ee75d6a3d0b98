"""The environment of a pipeline: everything that it runs with besides its resource."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla_spark.catch_up import CatchUpDisplay
from ottla_spark.progress_snapshot import ProgressSnapshot
from ottla_spark.run_report import RunReport

_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class RuntimeEnvironment:
    """Addresses, files and configuration of a run.

    bootstrap: the value of bootstrap.servers. checkpoint: the checkpoint's location, a path or a
    URL. progress: file that progress is appended to, as JSON lines. log: file of Spark's log.
    master: Spark's master; None runs on this machine. kafka: other client properties. conf: Spark
    configuration that overrides the pipeline's. registry: URL of the schema registry, empty if
    there is none. secrets: a folder that has one folder for each Secret, named like it. snapshot:
    receives the pipeline's progress. display: shows a person the progress until the pipeline has
    caught up. report: draws the progress as an HTML file. start_file: the pipeline begins when this
    file exists; None begins at once.
    """

    bootstrap: str
    checkpoint: str
    progress: Path | None = None
    log: Path | None = None
    master: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    conf: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""
    secrets: Path | None = None
    snapshot: ProgressSnapshot = field(default_factory=ProgressSnapshot)
    display: CatchUpDisplay | None = None
    report: RunReport | None = None
    start_file: Path | None = None

    @property
    def client_properties(self) -> dict[str, str]:
        return {**self.kafka, "bootstrap.servers": self.bootstrap}

    def wait_for_start(self, stop_requested: threading.Event) -> bool:
        """Waits until the pipeline may begin. False if a stop is requested before."""
        while self.start_file is not None and not self.start_file.exists():
            if stop_requested.wait(_POLL_S):
                return False
        return True
