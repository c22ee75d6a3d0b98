"""What writers of tables need to know besides the sink's spec: the pipeline and its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ottla_spark.streaming.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class SinkContext:
    """folder: base of relative paths. secrets: has a folder for each Secret. pipeline: name of the
    Pipeline. query: name of the sink's query.
    """

    folder: Path
    secrets: Path | None
    pipeline: str
    query: str
    checkpoint: Checkpoint

    @property
    def query_id(self) -> str:
        """Id that Spark gave the query when its checkpoint was created; batch numbers of another
        checkpoint begin at 0 again. To be called after the query has started.
        """
        return self.checkpoint.query_id(self.query)
