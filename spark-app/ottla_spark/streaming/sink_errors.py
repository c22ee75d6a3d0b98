"""Errors of the writers of tables, with the sink and the table that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError, describe_error


@contextmanager
def located_errors(sink: Sink, kind: str, table: str) -> Iterator[None]:
    """Raises errors of the block as PipelineError that names the sink, and the table too if the
    error is one of Spark or of the JVM. `kind`: iceberg, delta or jdbc.
    """
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f"sink {sink.query_name}: {kind}: {error}") from error
    except (Py4JJavaError, PySparkException) as error:
        message = f"sink {sink.query_name}: {kind}: {table}: {describe_error(error)}"
        raise PipelineError(message) from None
