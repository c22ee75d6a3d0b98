"""The Spark session: what is set before the first batch, and where Spark's own log goes.

The checkpoint fixes the state store and spark.sql.shuffle.partitions at batch 0, so both are chosen here and not left
to chance.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla_spark.jars import java
from ottla_spark.trouble import NotInstalled, Trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_OLDEST_JAVA: Final = 17

# Where planning and computing share a small machine, compiling costs more than it gains: with the quick compiler
# alone, the first row of
# examples/flights takes half the CPU time, and the whole year two thirds. A pipeline's own options come later and win.
_QUICK_COMPILER: Final = "-XX:TieredStopAtLevel=1"

_LOG_SETTINGS: Final = """\
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


def check_java() -> None:
    """Trouble unless there is a Java that Spark runs on."""
    command = java()
    said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?P<major>\d+)', said.stderr + said.stdout)
    if found is None:
        raise Trouble(f"{command} -version does not say which Java it is")
    if int(found["major"]) < _OLDEST_JAVA:
        raise NotInstalled(f"pipelines need Java {_OLDEST_JAVA} or newer; {command} is Java {found['major']}")


def settings(
    conf: Mapping[str, str], *, master: str | None, jars: Sequence[Path], scratch: Path, log: Path
) -> dict[str, str]:
    """Spark's settings: ours, with the pipeline's own laid over them."""
    own = {
        # The second number: a task that fails is tried again, as on a cluster; the default of a local master is not to.
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
    }
    if own["spark.master"].startswith("local"):
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    merged = own | dict(conf)
    on_path = os.pathsep.join(str(jar) for jar in jars)
    for role in ("driver", "executor"):
        name = f"spark.{role}.extraClassPath"
        merged[name] = os.pathsep.join(filter(None, [on_path, conf.get(name)]))
    log_settings = scratch / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS.format(file=log))
    name = "spark.driver.extraJavaOptions"
    options = [f"-Dlog4j2.configurationFile=file:{log_settings}", conf.get(name)]
    if own["spark.master"].startswith("local"):
        options.insert(0, _QUICK_COMPILER)
    merged[name] = " ".join(filter(None, options))
    return merged


def start(name: str, conf: Mapping[str, str]) -> SparkSession:
    """A session with these settings.

    Spark's words on standard error belong in its log: the caller has redirected them.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NotInstalled("pipelines need PySpark: pip install 'ottla[spark]'") from error
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    # Spark puts a handler of its own on Ctrl-C, which drops the jobs in flight; how a pipeline stops is for its
    # runner to say.
    before = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
    return spark
