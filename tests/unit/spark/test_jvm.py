"""The start of Spark's JVM, with a script in place of spark-submit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_spark.errors import MissingDependency, PipelineError
from ottla_spark.jvm import PORT, SECRET, Jvm

LISTENS = r"""printf '%s\n' "$@" > "$0.arguments"
printf '\000\000\047\020\000\000\000\003key' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat
"""


def write_script(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
    return file


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spark-submit that the test can change."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    write_script(tmp_path / "bin" / "java", "echo 'openjdk version \"17.0.1\"'")
    return write_script(tmp_path / "bin" / "spark-submit", LISTENS)


def test_variables_have_port_and_secret_of_the_jvm_which_ends_with_its_input(submit: Path, tmp_path: Path) -> None:
    jvm = Jvm({}, tmp_path)
    assert jvm.environment() == {PORT: "10000", SECRET: "key"}
    jvm.stop()
    assert jvm.process.returncode == 0


def test_secrets_are_not_on_the_command_line(submit: Path, tmp_path: Path) -> None:
    secrets = (
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.sql.catalog.lake.credential",
        "spark.sql.catalog.lake.jdbc.password",
        "spark.sql.catalog.lake.s3.access-key-id",
    )
    jvm = Jvm({"spark.master": "local", **dict.fromkeys(secrets, "sesame")}, tmp_path)
    jvm.environment()
    jvm.stop()
    assert Path(f"{submit}.arguments").read_text().split() == ["--conf", "spark.master=local", "pyspark-shell"]


def test_jvm_that_exits_is_an_error(submit: Path, tmp_path: Path) -> None:
    write_script(submit, "exit 3")
    with pytest.raises(PipelineError, match="JVM has exited with code 3"):
        Jvm({}, tmp_path).environment()


def test_older_java_is_reported_when_the_jvm_exits(submit: Path, tmp_path: Path) -> None:
    write_script(submit, "exit 1")
    write_script(tmp_path / "bin" / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(MissingDependency, match=r"need Java 17 or newer; .*/bin/java is Java 11"):
        Jvm({}, tmp_path).environment()
