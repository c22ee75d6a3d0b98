"""Jobs of `bench.pipelines`, written by hand in PySpark: `rows`, `counts`, and `counts-once`, which
is `counts` exactly once.

    python -m bench.spark_by_hand JOB --bootstrap ADDRESS --folder FOLDER [--defaults]
        [--no-archive] [--our-daemon]

Spark has the configuration of pipelines, except that the Python processes of executors are
PySpark's; --our-daemon selects those of pipelines. With --defaults, Spark has its own
configuration, except for the number of shuffle partitions, and the other two options have no
effect. Prints a JSON line for each batch: its rows and its time in ms.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.pipeline_jobs import (
    BATCH_ROWS,
    COUNTS,
    COUNTS_SQL,
    EVENTS,
    ROWS_SQL,
    SCHEMA,
    SHUFFLE_PARTITIONS,
    WITHOUT_ARCHIVE,
)
from bench.spark_transactions import write_batch
from ottla_spark.class_archive import class_archive
from ottla_spark.jars import cache_folder, ensure_jars
from ottla_spark.spark_conf import local_checkpoint_conf, spark_conf
from ottla_spark.streaming.session import start_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=tuple(JOBS))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument(
        "--no-archive", action="store_true", help="neither use an archive of classes nor list classes for one"
    )
    parser.add_argument("--our-daemon", action="store_true")
    options = parser.parse_args()
    own = WITHOUT_ARCHIVE if options.no_archive else {}
    if not options.our_daemon:
        own = {**own, "spark.python.daemon.module": "pyspark.daemon"}
    conf = _default_conf(options.folder) if options.defaults else _pipeline_conf(options.folder, own)
    spark = start_session("by hand", conf, options.folder)
    kafka = {"kafka.bootstrap.servers": options.bootstrap}
    stream = spark.readStream.format("kafka").options(**kafka, subscribe=EVENTS, startingOffsets="earliest")
    raw = stream.option("maxOffsetsPerTrigger", BATCH_ROWS).load()
    raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("event")).select(
        "event.*"
    ).createOrReplaceTempView("events")
    writer: Any = JOBS[options.job](spark.sql, kafka, options.folder)
    query = writer.option("checkpointLocation", str(options.folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    for batch in query.recentProgress:
        if batch["numInputRows"]:
            print(json.dumps({"rows": batch["numInputRows"], "batchMs": batch["durationMs"]["triggerExecution"]}))
    spark.stop()


def _pipeline_conf(folder: Path, conf: dict[str, str]) -> dict[str, str]:
    jars = ensure_jars()
    own = {
        **local_checkpoint_conf(str(folder)),
        **conf,
        "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    archive = class_archive(cache_folder(), jars, folder)
    return spark_conf(own, master=None, jars=jars, scratch=folder, log=folder / "spark.log", archive=archive)


def _default_conf(folder: Path) -> dict[str, str]:
    classpath = os.pathsep.join(map(str, ensure_jars()))
    return {
        "spark.master": "local[*]",
        "spark.driver.extraClassPath": classpath,
        "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
        "spark.local.dir": str(folder),
    }


def _rows_writer(sql: Any, kafka: dict[str, str], folder: Path) -> Any:
    return sql(ROWS_SQL).writeStream.format("parquet").option("path", str(folder / "out"))


def _counts_writer(sql: Any, kafka: dict[str, str], folder: Path) -> Any:
    rows: DataFrame = sql(COUNTS_SQL)
    records = rows.select(F.col("item").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return records.writeStream.format("kafka").options(**kafka, topic=COUNTS).outputMode("update")


def _counts_once_writer(sql: Any, kafka: dict[str, str], folder: Path) -> Any:
    """One task writes the rows in one transaction. A batch that runs again may compute sums that
    differ in their last digits, so a failed attempt must not leave some of its rows in the topic.
    """
    rows: DataFrame = sql(COUNTS_SQL)
    value = F.to_json(F.struct("*")).cast("binary")
    records = rows.select(F.col("item").cast("binary").alias("key"), value.alias("value"))
    bootstrap, job = kafka["kafka.bootstrap.servers"], folder.name

    def write(batch_rows: DataFrame, number: int) -> None:
        batch_rows.coalesce(1).foreachPartition(partial(write_batch, bootstrap, COUNTS, job, number))

    return records.writeStream.foreachBatch(write).outputMode("update")


JOBS: Final = {"rows": _rows_writer, "counts": _counts_writer, "counts-once": _counts_once_writer}

if __name__ == "__main__":
    main()
