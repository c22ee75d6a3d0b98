"""The context of the writers of tables, beside the sink of the Pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ottla_spark.streaming.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class SinkContext:
    """folder: base of relative paths. secrets: a folder with a folder for each Secret. pipeline,
    query: their names.
    """

    folder: Path
    secrets: Path | None
    pipeline: str
    query: str
    checkpoint: Checkpoint

    @property
    def query_id(self) -> str:
        """Id that Spark gave the query when its checkpoint was created; batch numbers
        of another checkpoint begin at 0 again. The query has started.
        """
        return self.checkpoint.query_id(self.query)
