"""The schedule of a lake table's maintenance, recorded in a file of the checkpoint:

    <checkpoint>/maintenance-<query>.json   time of the last run, in seconds since 1970

A batch that runs again is recognized by its entry in the table's history. Maintenance runs at the
beginning of a batch, when the checkpoint has the batch before it. So the entries that maintenance
may delete, those of earlier batches, are no longer needed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from ottla_operator.resources.common import parse_duration_ms
from ottla_operator.resources.table_sinks import Maintenance
from ottla_spark.streaming.checkpoint import Checkpoint


class MaintenanceSchedule:
    """Runs the maintenance of one table, at most once in its interval. A new table has nothing to
    maintain: the first run is after the first interval.
    """

    def __init__(self, maintenance: Maintenance | None, checkpoint: Checkpoint, query: str) -> None:
        self._maintenance = maintenance
        self._checkpoint = checkpoint
        self._file = f"maintenance-{query}.json"
        self._last_s: float | None = None

    def run_if_due(self, run: Callable[[float], None]) -> None:
        """`run` takes the time for which versions are retained, in seconds. A run is recorded
        before it starts: one that fails is not repeated before the next interval, so that it cannot
        stop the pipeline for good.
        """
        if self._maintenance is None:
            return
        now_s = time.time()
        if self._last_s is None:
            text = self._checkpoint.read_text(self._file)
            self._last_s = now_s if text is None else float(json.loads(text))
            if text is None:
                self._checkpoint.write_text(self._file, json.dumps(now_s))
        if is_due(self._maintenance, self._last_s, now_s):
            self._last_s = now_s
            self._checkpoint.write_text(self._file, json.dumps(now_s))
            run(parse_duration_ms(self._maintenance.retain) / 1000)


def is_due(maintenance: Maintenance, last_s: float, now_s: float) -> bool:
    """True after an interval, also if the clock was set back by more than that."""
    return abs(now_s - last_s) >= parse_duration_ms(maintenance.interval) / 1000
