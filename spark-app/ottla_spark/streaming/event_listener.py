"""Events of streaming queries, from Spark's listener to the thread that runs the pipeline.

PySpark's own listener copies every field of a progress event, in hundreds of requests to the JVM.
This one takes the event's JSON.
"""

from __future__ import annotations

import queue
from typing import Any, ClassVar, cast

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from ottla_spark.progress import parse_progress_event


class EventListener:
    """Puts the progress of batches, and the run id of each query that has terminated, into a
    queue. Spark calls the methods.
    """

    def __init__(self, events: queue.SimpleQueue[Any]) -> None:
        self._events = events

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self._events.put(parse_progress_event(event.progress().json()))

    def onQueryTerminated(self, event: Any) -> None:
        self._events.put(event.runId().toString())

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def add_listener(spark: SparkSession, listener: EventListener) -> None:
    """Has Spark report the events of the session's queries."""
    ensure_callback_server_started(cast(Any, spark.sparkContext)._gateway)  # type: ignore[no-untyped-call]
    wrapper = cast(Any, spark._jvm).org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    spark._jsparkSession.streams().addListener(wrapper(listener))
