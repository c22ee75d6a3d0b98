"""Runs the transforms of a pipeline. Each computes a view from earlier views: with SQL, with a
Python function, as a union, or with a stateful processor in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla_operator.resources.transforms import Transform
from ottla_spark.errors import PipelineError, describe_error
from ottla_spark.python_files import load_from_file
from ottla_spark.streaming.encode import output_columns
from ottla_spark.streaming.stateful_step import transform_with_state


def run_step(spark: SparkSession, step: Transform, frames: Mapping[str, DataFrame], folder: Path) -> DataFrame:
    """The view of a step. `frames`: views of the sources and of earlier steps. `folder`: base of
    relative paths. Raises PipelineError and PySparkException.
    """
    if step.sql is not None:
        return _run_sql(spark, step.sql, frames)
    if step.union is not None:
        return _unite(step.union, frames)
    if step.transform_with_state is not None:
        return transform_with_state(step.transform_with_state, frames, folder)
    return _call_function(step.python or "", frames, folder)


def _run_sql(spark: SparkSession, sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            raise PipelineError(f"{describe_error(error)}; there are {', '.join(frames)}") from error
        raise


def _call_function(reference: str, frames: Mapping[str, DataFrame], folder: Path) -> DataFrame:
    function = load_from_file(reference, folder)
    try:
        result = function(dict(frames))
    except (PipelineError, PySparkException):
        raise
    except Exception as error:  # the pipeline's own code can raise anything
        raise PipelineError(f"{reference} raised {type(error).__name__}: {error}") from error
    if not isinstance(result, DataFrame):
        raise PipelineError(f"{reference} returned {type(result).__name__}, not a DataFrame")
    return result


def _unite(names: Sequence[str], frames: Mapping[str, DataFrame]) -> DataFrame:
    """All rows of views with the same columns. Origin columns are kept if all views have them.
    Raises PipelineError if other columns differ.
    """
    first, *others = names
    shared = [it for it in frames[first].columns if all(it in frames[name].columns for name in others)]
    for name in others:
        for one, other in ((first, name), (name, first)):
            if missing := [it for it in output_columns(frames[one]) if it not in frames[other].columns]:
                raise PipelineError(
                    f"union: {other} has no column {', '.join(missing)}, which {one} has; views of a union have the "
                    "same columns"
                )
    rows = frames[first].select(*[f"`{it}`" for it in shared])
    for name in others:
        rows = rows.unionByName(frames[name].select(*[f"`{it}`" for it in shared]))
    return rows
