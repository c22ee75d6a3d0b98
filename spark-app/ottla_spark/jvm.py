"""Spark's JVM, which starts while Python still imports PySpark.

PySpark would start it by the same script, wait for it, and put every property on its command line,
which each user of the machine can read. Here properties with secrets are left out: the session gets
them from Python. If two environment variables name the port and the secret of a JVM, PySpark
connects to it and starts none. The JVM ends when its standard input is closed, also by the end of
this process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla_spark.errors import MissingDependency, PipelineError
from ottla_spark.jars import find_java
from ottla_spark.spark_conf import REDACTED

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_CONNECTION_FILE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_POLL_S: Final = 0.02
_MIN_JAVA_VERSION: Final = 17


class Jvm:
    """Starts the JVM as a child process. folder: for the file in which the JVM writes its address.
    Raises MissingDependency without Java.
    """

    def __init__(self, conf: Mapping[str, str], folder: Path) -> None:
        find_java()
        self._connection = folder / "jvm.connection"
        public = {name: value for name, value in conf.items() if not REDACTED.search(name)}
        properties = [it for name, value in public.items() for it in ("--conf", f"{name}={value}")]
        self.process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-submit"), *properties, "pyspark-shell"],
            stdin=subprocess.PIPE,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", _CONNECTION_FILE: str(self._connection)},
            preexec_fn=_ignore_interrupts,  # on Ctrl-C the runner lets the batch in flight complete
        )

    def environment(self) -> dict[str, str]:
        """Waits until the JVM listens. Returns the environment variables by which PySpark connects
        to it. Raises PipelineError.
        """
        while not self._connection.exists():
            if self.process.poll() is not None:
                check_java()
                raise PipelineError(f"Spark's JVM has exited with code {self.process.returncode}; see Spark's log")
            time.sleep(_POLL_S)
        content = self._connection.read_bytes()
        return {PORT: str(int.from_bytes(content[:4])), SECRET: content[8:].decode()}

    def stop(self) -> None:
        """Ends the JVM. Returns when it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def has_jvm() -> bool:
    """True if PySpark is connected to a JVM, or a JVM has started this process."""
    context = sys.modules.get("pyspark.core.context")
    return PORT in os.environ or (context is not None and context.SparkContext._gateway is not None)


def spark_home() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingDependency("pipelines need PySpark: pip install 'ottla[spark]'")
    return Path(found.origin).parent


def check_java() -> None:
    """Raises MissingDependency without a Java that Spark supports, and PipelineError if java prints
    no version.
    """
    command = find_java()
    output = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?P<major>\d+)', output.stderr + output.stdout)
    if version is None:
        raise PipelineError(f"{command} -version printed no version")
    if int(version["major"]) < _MIN_JAVA_VERSION:
        raise MissingDependency(
            f"pipelines need Java {_MIN_JAVA_VERSION} or newer; {command} is Java {version['major']}"
        )


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
