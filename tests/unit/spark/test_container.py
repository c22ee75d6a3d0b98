"""Commands of the entry point of the pipelines' image."""

import sys
from pathlib import Path

import pytest

from ottla_spark import jars
from ottla_spark.container import container_command
from ottla_spark.errors import PipelineError

ENVIRONMENT = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1408m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pipeline-exec-3",
    "SPARK_JAVA_OPT_10": "-Dten",
    "SPARK_JAVA_OPT_2": "-Dtwo",
}


@pytest.fixture(autouse=True)
def connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "ensure_jars", lambda: [Path("/jars/kafka.jar")])
    monkeypatch.setattr(jars, "find_java", lambda: "/usr/bin/java")


def test_driver_submits_in_client_mode() -> None:
    line = container_command(["driver", "--class", "Main", "local:///x.py"], {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.6"})
    assert line[0].endswith("/pyspark/bin/spark-submit")
    arguments = ["--conf", "spark.driver.bindAddress=10.0.0.6", "--deploy-mode", "client"]
    assert line[1:] == [*arguments, "--class", "Main", "local:///x.py"]


def test_executor_is_configured_by_the_environment() -> None:
    line = container_command(["executor"], ENVIRONMENT)
    assert line[:5] == ["/usr/bin/java", "-Dtwo", "-Dten", "-Xms1408m", "-Xmx1408m"]
    assert line[5] == "-cp"
    assert line[6].endswith("/pyspark/jars/*:/jars/kafka.jar")
    options = dict(zip(line[8::2], line[9::2], strict=True))
    assert options["--driver-url"] == "spark://CoarseGrainedScheduler@driver:7078"
    assert options["--podName"] == "pipeline-exec-3"
    assert len(options) == 7


@pytest.mark.parametrize("missing", [name for name in ENVIRONMENT if "_OPT_" not in name])
def test_missing_variable_of_an_executor_is_an_error(missing: str) -> None:
    with pytest.raises(PipelineError, match=f"{missing} is not set"):
        container_command(["executor"], {name: value for name, value in ENVIRONMENT.items() if name != missing})


def test_other_arguments_are_a_command_of_ottla_spark() -> None:
    assert container_command(["run", "--pipeline", "x"], {}) == [
        sys.executable,
        "-m",
        "ottla_spark",
        "run",
        "--pipeline",
        "x",
    ]
