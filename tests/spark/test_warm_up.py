"""The Python process that starts before the first batch, on real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla_spark.jars import ensure_jars
from ottla_spark.streaming.session import spark_conf, start_session
from ottla_spark.streaming.transactional_writer import start_worker

# Pickled by value: by reference, the task would import this module, and with it the writer.
HAS_IMPORTED_THE_WRITER: Callable[[None], bool] = eval(
    "lambda _: 'ottla_spark.streaming.transactional_writer' in __import__('sys').modules", {"__name__": "__main__"}
)


def test_next_task_runs_in_the_process_that_was_started(tmp_path: Path) -> None:
    # Tests after this one use the same JVM, whose class path is that of the first session.
    conf = spark_conf({}, master="local[1]", jars=ensure_jars(), scratch=tmp_path, log=tmp_path / "spark.log")
    spark = start_session("warm up", conf)
    try:
        one_row = spark.sparkContext.parallelize([None], 1)
        assert one_row.map(HAS_IMPORTED_THE_WRITER).collect() == [False]
        start_worker(spark)
        assert one_row.map(HAS_IMPORTED_THE_WRITER).collect() == [True]
    finally:
        spark.stop()
