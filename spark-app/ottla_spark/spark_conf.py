"""Spark's configuration: the runner's defaults, and the pipeline's own properties over them.

The checkpoint fixes the state store and spark.sql.shuffle.partitions at batch 0, so both are always
set: the state store here, the number of partitions when the checkpoint is known (`query_runner`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ottla_operator.resources.common import parse_duration_ms
from ottla_spark.class_archive import ClassArchive

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
REDACTED: Final = re.compile(r"(?i)secret|password|token|access[.-]?key|credential|jaas|keystore[.]key")
"""Names of properties whose values Spark's UI and logs do not show, and that are not on the JVM's
command line: those of Spark's default, Kafka client properties with login data, and credentials of
catalogs and object stores.
"""

IN_FILTER_THRESHOLD: Final = 100
"""Largest number of values in an IN filter that Spark compares one by one with the statistics of a
Parquet file's pages. Of more values, it compares only the smallest and the largest.
"""

# On one machine, the optimizing compiler costs more than it saves: with C1 alone, the first row of
# examples/flights takes half the CPU time, and all of its data, a year of flights, two thirds. The
# pipeline's own options come later and take precedence. With C1 alone, the JVM's default for
# compiled code is 48 MB instead of 240. A few queries with Delta tables fill 48 MB: then the JVM
# discards code that it has to compile again.
_C1_COMPILER_ONLY: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# Spark's default is Hadoop's newer interface of file systems. On a local disk that starts the
# command `readlink` eight times for each file that a batch writes to the checkpoint.
_LOCAL_CHECKPOINT_FILES: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    )
}

_LOG4J_PROPERTIES: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
logger.adminconfig.name = org.apache.kafka.clients
logger.adminconfig.level = error
"""


def spark_interval(duration: str) -> str:
    """A duration as Spark writes it: "2 hours" is "7200000 milliseconds". Raises ValueError."""
    return f"{parse_duration_ms(duration)} milliseconds"


def local_checkpoint_conf(checkpoint: str) -> dict[str, str]:
    """Properties for a checkpoint on a local disk; none for another. `checkpoint`: path or URL."""
    return _LOCAL_CHECKPOINT_FILES if urlsplit(checkpoint).scheme in ("", "file") else {}


def spark_conf(
    conf: Mapping[str, str],
    *,
    master: str | None,
    jars: Sequence[Path],
    scratch: Path,
    log: Path,
    archive: ClassArchive | None = None,
) -> dict[str, str]:
    """Spark's configuration: the runner's defaults, overridden by `conf`; class paths and driver
    Java options of `conf` are appended to the runner's. Writes the log configuration to `scratch`.
    `archive`: that of Spark's classes; None loads them from the jars.
    """
    defaults = {
        # 4: a failed task is retried, as on a cluster. The default of a local master is no retry.
        "spark.master": master or "local[*,4]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch),
        STATE_STORE: ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Otherwise PySpark sends six requests to the JVM for each column expression, to note the
        # line of Python that makes it. `describe_error` leaves these lines out.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.python.daemon.module": "ottla_spark.streaming.python_daemon",
        "spark.sql.parquet.pushdown.inFilterThreshold": str(IN_FILTER_THRESHOLD),
        "spark.redaction.regex": REDACTED.pattern,
    }
    if defaults["spark.master"].startswith("local"):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    merged = defaults | dict(conf)
    jar_path = os.pathsep.join(str(jar) for jar in jars)
    for role in ("driver", "executor"):
        name = f"spark.{role}.extraClassPath"
        merged[name] = os.pathsep.join(filter(None, [jar_path, conf.get(name)]))
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J_PROPERTIES.format(file=log))
    name = "spark.driver.extraJavaOptions"
    options = [f"-Dlog4j2.configurationFile=file:{log4j}", conf.get(name)]
    if defaults["spark.master"].startswith("local"):
        options.insert(0, _C1_COMPILER_ONLY)
    if archive is not None:
        options = [*archive.java_options(conf.get(name, "")), *options]
    merged[name] = " ".join(filter(None, options))
    return merged
