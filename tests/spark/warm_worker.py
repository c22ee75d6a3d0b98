"""Starts the Python process that writes to topics. Prints whether the writer's module was imported
in the process of a task before that, of one after it, and of one that is not the sink's; and
whether processes keep archives that have not changed.

    python -m tests.spark.warm_worker FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipimport import zipimporter

from ottla_spark.spark_conf import spark_conf
from ottla_spark.streaming.session import start_session
from ottla_spark.streaming.transactional_writer import start_worker
from ottla_spark.streaming.writer_processes import collect_in_own_processes


def has_imported_the_writer(_: None) -> bool:
    """Pickled by value, because it is of the main module: it imports nothing."""
    return "ottla_spark.streaming.partition_writer" in sys.modules


def keeps_archives(_: None) -> bool:
    return zipimporter.invalidate_caches.__name__ == "read_if_changed"


def main(folder: Path) -> None:
    conf = spark_conf({}, master="local[1]", jars=[], scratch=folder, log=folder / "spark.log")
    spark = start_session("warm worker", conf, folder)
    one_row = spark.sparkContext.parallelize([None], 1)
    imported = one_row.map(has_imported_the_writer)
    before = collect_in_own_processes(imported, "sink")
    start_worker(spark, "sink")
    others = one_row.map(has_imported_the_writer).collect()
    print(*before, *imported.collect(), *others, *one_row.map(keeps_archives).collect())
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
