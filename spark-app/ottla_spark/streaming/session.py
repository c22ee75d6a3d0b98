"""The Spark session."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ottla_spark.class_archive import ClassArchive, archive_writing
from ottla_spark.jvm import Jvm, has_jvm
from ottla_spark.streaming.java_names import remember_names


def start_session(name: str, conf: Mapping[str, str], folder: Path, jvm: Jvm | None = None) -> SparkSession:
    """Starts Spark. The JVM writes to standard error, which the caller redirects. `folder`: for
    files of the JVM. `jvm`: one that is starting; None starts one, unless this process has one.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if jvm is None and not has_jvm():
        jvm = Jvm(conf, folder)
    if jvm is not None:
        _connect(jvm)
    SparkContext._ensure_initialized()  # without `jvm`, connects to the JVM that has started this process
    remember_names(SparkContext)
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    # Spark installs a SIGINT handler that cancels the jobs in flight. The runner stops the pipeline
    # gracefully instead.
    handler = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return spark


def _connect(jvm: Jvm) -> None:
    """Has PySpark use the JVM. Raises PipelineError if it does not start."""
    variables = jvm.environment()
    os.environ |= variables
    try:
        context: Any = SparkContext
        context._ensure_initialized()
        context._gateway.proc = jvm.process  # as PySpark does: the JVM lives as long as this object
    finally:
        for name in variables:
            del os.environ[name]


def writing_archive(
    spark: SparkSession, archive: ClassArchive | None, has_rows: Callable[[], bool]
) -> AbstractContextManager[None]:
    """Writes the archive in another process while the block runs, see
    `class_archive.archive_writing`. If `archive` is None, nothing is written.
    """
    if archive is None:
        return nullcontext()
    jvm: Any = spark._jvm
    return archive_writing(archive, str(jvm.java.lang.System.getProperty("java.class.path")), has_rows)
