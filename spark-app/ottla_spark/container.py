"""Entry point of the pipelines' image: `driver`, `executor`, or a command of `python -m
ottla_spark`.

Spark on Kubernetes starts its pods with the first two and configures executors by environment
variables (https://spark.apache.org/docs/4.0.0/running-on-kubernetes.html). The command that runs
replaces this process, so that signals reach it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from ottla_spark import jars
from ottla_spark.errors import PipelineError
from ottla_spark.jvm import spark_home

EXECUTOR_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Option of the executor → environment variable with its value.
EXECUTOR_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def container_command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Command line to execute. Raises PipelineError if a variable that Spark sets is missing."""
    match arguments:
        case ["driver", *rest]:
            return _driver(rest, environment)
        case ["executor", *_]:
            return _executor(environment)
    return [sys.executable, "-m", "ottla_spark", *arguments]


def _driver(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The driver pod submits in client mode: it is the driver."""
    binds = f"spark.driver.bindAddress={_variable(environment, 'SPARK_DRIVER_BIND_ADDRESS')}"
    return [str(spark_home() / "bin" / "spark-submit"), "--conf", binds, "--deploy-mode", "client", *arguments]


def _executor(environment: Mapping[str, str]) -> list[str]:
    memory = _variable(environment, "SPARK_EXECUTOR_MEMORY")
    numbered = {
        int(found[1]): value
        for name, value in environment.items()
        if (found := re.fullmatch(r"SPARK_JAVA_OPT_(\d+)", name))
    }
    extra = environment.get("SPARK_EXTRA_CLASSPATH") or environment.get("SPARK_CLASSPATH")
    connector = map(str, jars.ensure_jars())
    classpath = os.pathsep.join(
        filter(None, [environment.get("SPARK_CONF_DIR"), f"{spark_home()}/jars/*", *connector, extra])
    )
    options = [part for name, variable in EXECUTOR_OPTIONS.items() for part in (name, _variable(environment, variable))]
    java_options = [numbered[number] for number in sorted(numbered)]
    return [
        jars.find_java(),
        *java_options,
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        classpath,
        EXECUTOR_CLASS,
        *options,
    ]


def _variable(environment: Mapping[str, str], name: str) -> str:
    if not (value := environment.get(name)):
        raise PipelineError(f"{name} is not set: Spark sets it in the pods that it creates")
    return value


def main() -> NoReturn:
    try:
        command = container_command(sys.argv[1:], os.environ)
    except PipelineError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault("SPARK_HOME", str(spark_home()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    sys.stdout.flush()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
