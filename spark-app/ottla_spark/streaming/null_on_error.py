"""Columns that are null where another column has an error. Spark's functions `try_…` are made of
the same expression, which it has no function for.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql.classic.column import Column as JvmColumn


def null_on_error(column: Column) -> Column:
    """Errors of the machine, such as too little memory, remain errors."""
    sql = cast(Any, SparkContext._jvm).org.apache.spark.sql
    expression = sql.classic.ExpressionUtils.expression(cast(Any, column)._jc)
    return JvmColumn(sql.classic.ExpressionUtils.column(sql.catalyst.expressions.TryEval(expression)))
