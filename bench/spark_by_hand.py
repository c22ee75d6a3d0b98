"""The jobs of `bench.pipelines`, written by hand in PySpark.

    python -m bench.spark_by_hand JOB --bootstrap HOST:PORT --folder FOLDER

Spark has the configuration of pipelines, so that only the code differs. Prints a JSON line for each
batch: its rows and its time in ms.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.pipeline_jobs import BATCH_ROWS, COUNTS, COUNTS_SQL, EVENTS, ROWS_SQL, SCHEMA, SHUFFLE_PARTITIONS
from ottla_spark.jars import ensure_jars
from ottla_spark.streaming.session import spark_conf, start_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=tuple(JOBS))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    conf = spark_conf(
        {"spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS, "spark.sql.streaming.numRecentProgressUpdates": "1000"},
        master=None,
        jars=ensure_jars(),
        scratch=options.folder,
        log=options.folder / "spark.log",
    )
    spark = start_session("by hand", conf)
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


def _write_rows(sql: Any, kafka: dict[str, str], folder: Path) -> Any:
    return sql(ROWS_SQL).writeStream.format("parquet").option("path", str(folder / "out"))


def _write_counts(sql: Any, kafka: dict[str, str], folder: Path) -> Any:
    rows: DataFrame = sql(COUNTS_SQL)
    records = rows.select(F.col("item").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return records.writeStream.format("kafka").options(**kafka, topic=COUNTS).outputMode("update")


JOBS: Final = {"rows": _write_rows, "counts": _write_counts}

if __name__ == "__main__":
    main()
