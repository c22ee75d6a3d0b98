"""JVM options for the tests' JVMs, and an archive of the classes that they load.

Loading and verifying Spark's classes takes a third of the processor time of a driver that lives for
one batch. The JVM that most tests share lists the classes that it loads, and an archive of them is
written when its tests end, unless there is one for these jars (`ottla_spark.class_archive`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ottla_spark import jars, launch
from ottla_spark.class_archive import ArchiveWriter, ClassArchive, class_archive

# Spark's own functions for Avro, as a second reader of what sinks write.
SPARK_AVRO = jars.Jar(
    "org.apache.spark", "spark-avro_2.13", "4.0.0", "083fb13d7a1091025b135eff216e2009b42c9724bb8bc597d2f28b1207ef4709"
)
OPTIONS: Final = "spark.driver.extraJavaOptions"
OPTIONS_OF_SUBMIT: Final = "SPARK_SUBMIT_OPTS"
"""The environment variable whose options `spark-submit` gives its JVM."""
# G1 would mark the small heap of the tests again and again. What little lives is copied less often
# in a large young generation, and classes are not unloaded each time that some more are loaded.
_SMALL_HEAP: Final = ("-XX:+UseSerialGC", "-Xmn512m", "-XX:MetaspaceSize=512m")


def add_all_sinks(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Has each pipeline of this process start its JVM with the jars of all sinks."""
    set_attribute(jars, "EXTRA_JARS", {**jars.EXTRA_JARS, "from_avro": (SPARK_AVRO,)})
    set_attribute(launch, "sink_jars", lambda _: set(jars.EXTRA_JARS))


def archive_of_all_sinks(scratch: Path) -> ClassArchive:
    """The archive for the jars of all sinks, which are downloaded if they are missing."""
    needed = jars.ensure_jars(jars.EXTRA_JARS)
    return class_archive(jars.cache_folder().with_name("spark-test-archives"), needed, scratch)


def shared_jvm_conf(archive: ClassArchive) -> dict[str, str]:
    """Spark's configuration of the JVM that most tests share."""
    return {OPTIONS: " ".join([*_SMALL_HEAP, *archive.java_options()])}


def own_jvm_environment() -> dict[str, str]:
    """Environment variables of a process that starts a JVM of its own, with the jars of all
    sinks. It reads the archive if there is one, and lists no classes.
    """
    archive = archive_of_all_sinks(Path())
    return {OPTIONS_OF_SUBMIT: " ".join([*_SMALL_HEAP, *(archive.java_options() if archive.file.exists() else ())])}


def write_archive(archive: ClassArchive) -> None:
    """Writes an archive of the classes that the JVM of this process has listed, if any."""
    from pyspark.core.context import SparkContext  # not in a process whose JVM is to start before

    gateway: Any = SparkContext._gateway
    if gateway is not None and archive.class_list.exists():
        classpath = str(gateway.jvm.java.lang.System.getProperty("java.class.path"))
        ArchiveWriter(archive, classpath).run(lambda: True)
