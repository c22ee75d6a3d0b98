"""transformWithState: a Python class of the pipeline keeps state for each key, with timers.

The class is a `pyspark.sql.streaming.StatefulProcessor`. Its state is in the checkpoint, in
RocksDB, which Spark requires for it. Spark passes rows to the class in pandas DataFrames, so pandas
and PyArrow have to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType, TimestampType

from ottla_operator.resources.transforms import TransformWithState
from ottla_spark.errors import MissingDependency, PipelineError, describe_error
from ottla_spark.python_files import load_from_file
from ottla_spark.streaming.encode import output_columns

_TIME_MODES: Final = {"none": "None", "processingTime": "ProcessingTime", "eventTime": "EventTime"}


def transform_with_state(step: TransformWithState, frames: Mapping[str, DataFrame], folder: Path) -> DataFrame:
    """Rows that the class returns. Raises PipelineError that names the field, and MissingDependency
    without pandas or PyArrow.
    """
    for package in ("pandas", "pyarrow"):
        if find_spec(package) is None:
            raise MissingDependency(f"transformWithState needs {package}: pip install 'ottla[spark,spark-state]'")
    rows = frames[step.source]
    if missing := [it for it in step.key if it not in rows.columns]:
        raise PipelineError(
            f"transformWithState.key: {step.source} has no column {', '.join(missing)}; "
            f"it has {', '.join(output_columns(rows))}"
        )
    if step.timers == "eventTime" and rows.isStreaming and not has_watermark(rows):
        raise PipelineError(
            f"transformWithState.timers: eventTime needs rows with a watermark, and {step.source} has none; "
            "set watermark of its source"
        )
    columns = _parse_columns(step)
    processor = _load_processor(step.processor, folder)
    return rows.groupBy(*step.key).transformWithStateInPandas(
        statefulProcessor=processor,
        outputStructType=columns,
        outputMode="Append" if step.event_time else "Update",
        timeMode=_TIME_MODES[step.timers],
        eventTimeColumnName=step.event_time or "",
    )


def _parse_columns(step: TransformWithState) -> StructType:
    where = "transformWithState.columns"
    try:
        columns = StructType.fromDDL(step.columns)
    except PySparkException as error:
        raise PipelineError(f"{where}: {describe_error(error)}") from error
    if not isinstance(columns, StructType):
        raise PipelineError(f"{where}: {step.columns!r} is a type, not a list of columns")
    if step.event_time is not None:
        found = {it.name: it.dataType for it in columns}
        if not isinstance(found.get(step.event_time), TimestampType):
            times = ", ".join(name for name, type_ in found.items() if isinstance(type_, TimestampType))
            raise PipelineError(
                f"transformWithState.eventTime: {step.event_time!r} is not a TIMESTAMP column of "
                f"transformWithState.columns; those are: {times or 'none'}"
            )
    return columns


def _load_processor(reference: str, folder: Path) -> StatefulProcessor:
    found = load_from_file(reference, folder)
    where = "transformWithState.processor"
    if not (isinstance(found, type) and issubclass(found, StatefulProcessor)):
        raise PipelineError(f"{where}: {reference} is not a class derived from pyspark.sql.streaming.StatefulProcessor")
    try:
        return found()
    except Exception as error:  # the pipeline's own code can raise anything
        raise PipelineError(f"{where}: {reference}() raised {type(error).__name__}: {error}") from error


def has_watermark(rows: DataFrame) -> bool:
    def is_watermarked(plan: Any) -> bool:
        children = plan.children()
        return plan.nodeName() == "EventTimeWatermark" or any(
            is_watermarked(children.apply(at)) for at in range(children.size())
        )

    return is_watermarked(rows._jdf.queryExecution().analyzed())
