"""Events of streaming queries, from Spark's listener to the thread that runs the pipeline."""

from __future__ import annotations

import queue
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla_spark.progress import parse_progress_event


class EventListener(StreamingQueryListener):
    """Puts the progress of batches, and the run id of each query that has terminated, into a
    queue.
    """

    def __init__(self, events: queue.SimpleQueue[Any]) -> None:
        self._events = events

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._events.put(parse_progress_event(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._events.put(str(event.runId))
