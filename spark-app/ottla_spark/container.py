"""What a container of the pipelines' image runs: its first argument says `driver`, `executor`, or a command of `python -m ottla_spark`.

Spark on Kubernetes starts its pods with the first two, and tells executors what to be in environment variables
(https://spark.apache.org/docs/4.0.0/running-on-kubernetes.html). The process becomes the JVM, so that signals reach it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from ottla_spark import jars
from ottla_spark.trouble import NotInstalled, Trouble

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Option of the executor, and the variable that holds it.
EXECUTOR_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command line to become. Trouble when a variable that Spark should have set is not."""
    match arguments:
        case ["driver", *rest]:
            return _driver(rest, environment)
        case ["executor", *_]:
            return _executor(environment)
    return [sys.executable, "-m", "ottla_spark", *arguments]


def _driver(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """In the driver's own pod, what was submitted from elsewhere is a client."""
    binds = f"spark.driver.bindAddress={_told(environment, 'SPARK_DRIVER_BIND_ADDRESS')}"
    return [str(_spark() / "bin" / "spark-submit"), "--conf", binds, "--deploy-mode", "client", *arguments]


def _executor(environment: Mapping[str, str]) -> list[str]:
    memory = _told(environment, "SPARK_EXECUTOR_MEMORY")
    numbered = {
        int(found[1]): value
        for name, value in environment.items()
        if (found := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name))
    }
    extra = environment.get("SPARK_EXTRA_CLASSPATH") or environment.get("SPARK_CLASSPATH")
    connector = map(str, jars.connector())
    classpath = os.pathsep.join(
        filter(None, [environment.get("SPARK_CONF_DIR"), f"{_spark()}/jars/*", *connector, extra])
    )
    options = [part for name, variable in EXECUTOR_OPTIONS.items() for part in (name, _told(environment, variable))]
    java_options = [numbered[number] for number in sorted(numbered)]
    return [jars.java(), *java_options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classpath, EXECUTOR, *options]


def _told(environment: Mapping[str, str], variable: str) -> str:
    if not (value := environment.get(variable)):
        raise Trouble(f"{variable} is not set: Spark sets it in the pods that it makes")
    return value


def _spark() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotInstalled("pipelines need PySpark: pip install 'ottla[spark]'")
    return Path(found.origin).parent


def main() -> NoReturn:
    try:
        wanted = command(sys.argv[1:], os.environ)
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault("SPARK_HOME", str(_spark()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    sys.stdout.flush()
    os.execvp(wanted[0], wanted)


if __name__ == "__main__":
    main()
