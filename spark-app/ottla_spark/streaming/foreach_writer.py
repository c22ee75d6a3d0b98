"""The sink `foreach`: executors call a Python function of the pipeline with each row.

The function is called with each row at least once: a batch that failed runs again, with all of its
rows. A function that raises fails the batch.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from ottla_operator.resources.sinks import Foreach
from ottla_spark.python_files import load_from_file
from ottla_spark.streaming.encode import output_columns
from ottla_spark.streaming.sink import BatchWriter


def foreach_writer(target: Foreach, folder: Path) -> BatchWriter:
    """`folder`: base of the function's path. Raises PipelineError if the function cannot be
    loaded.
    """
    function = load_from_file(target.python, folder)

    def write(rows: DataFrame, batch: int) -> None:
        rows.select(*[f"`{name}`" for name in output_columns(rows)]).foreach(function)

    return write
