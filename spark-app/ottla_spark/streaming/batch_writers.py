"""The writer of each sink that is not a topic."""

from __future__ import annotations

from ottla_operator.resources.sinks import Sink
from ottla_spark.streaming.delta_writer import DeltaWriter
from ottla_spark.streaming.foreach_writer import foreach_writer
from ottla_spark.streaming.iceberg_writer import IcebergWriter
from ottla_spark.streaming.jdbc_writer import JdbcWriter
from ottla_spark.streaming.sink import BatchWriter, file_writer
from ottla_spark.streaming.sink_context import SinkContext


def batch_writer(sink: Sink, context: SinkContext) -> BatchWriter:
    """Raises PipelineError if the function of a `foreach` cannot be loaded."""
    if sink.jdbc is not None:
        return JdbcWriter(sink, sink.jdbc, context)
    if sink.iceberg is not None:
        return IcebergWriter(sink, sink.iceberg, context)
    if sink.delta is not None:
        return DeltaWriter(sink, sink.delta, context)
    if sink.foreach is not None:
        return foreach_writer(sink.foreach, context.folder)
    return file_writer(sink, context.folder)
