"""The archive of Spark's classes: which one a JVM uses, and when it is written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla_spark import class_archive
from ottla_spark.streaming.session import spark_conf

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return class_archive.archive_path(tmp_path / "cache", [])


def stopping_java(archive: Path, script: str) -> SimpleNamespace:
    """A gateway whose JVM runs the script when its standard input ends."""
    java = subprocess.Popen(["sh", "-c", f"cat; {script}"], stdin=subprocess.PIPE)
    return SimpleNamespace(proc=java, shutdown=lambda: None)


def test_other_java_and_other_jars_have_other_archives(archive: Path, tmp_path: Path) -> None:
    assert class_archive.archive_path(archive.parent, []) == archive
    jar = tmp_path / "a.jar"
    jar.touch()
    assert class_archive.archive_path(archive.parent, [jar]) != archive
    os.utime(tmp_path / "bin" / "java", (1, 1))
    assert class_archive.archive_path(archive.parent, []) != archive


def test_archive_is_written_at_the_end_of_the_first_run_and_read_by_later_ones(archive: Path) -> None:
    assert class_archive.java_options(archive, "")[-1] == f"-XX:ArchiveClassesAtExit={class_archive.new_path(archive)}"
    class_archive.await_archive(archive, stopping_java(archive, f"touch {class_archive.new_path(archive)}"))
    assert [*archive.parent.iterdir()] == [archive]
    assert class_archive.java_options(archive, "")[-1] == f"-XX:SharedArchiveFile={archive}"


def test_jvm_that_writes_no_archive_changes_nothing(archive: Path) -> None:
    class_archive.java_options(archive, "")
    class_archive.await_archive(archive, stopping_java(archive, "exit 1"))
    assert [*archive.parent.iterdir()] == []


def test_what_a_killed_process_has_left_is_deleted(archive: Path) -> None:
    archive.parent.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    own, left = class_archive.new_path(archive), archive.with_suffix(f".{ended.pid}")
    own.touch()
    left.touch()
    class_archive.java_options(archive, "")
    assert [*archive.parent.iterdir()] == [own]


def test_the_newest_archives_of_other_versions_stay(archive: Path) -> None:
    archive.parent.mkdir()
    for number in range(5):
        old = archive.with_name(f"spark-classes-{number}.jsa")
        old.touch()
        os.utime(old, (number, number))
    class_archive.java_options(archive, "")
    class_archive.await_archive(archive, stopping_java(archive, f"touch {class_archive.new_path(archive)}"))
    kept = {it.name for it in archive.parent.iterdir()}
    assert kept == {archive.name, *(f"spark-classes-{number}.jsa" for number in (2, 3, 4))}


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/own.jsa", "-Xshare:off"])
def test_options_of_the_pipeline_take_precedence(archive: Path, own: str) -> None:
    assert class_archive.java_options(archive, own) == []


def test_folder_that_cannot_be_written_is_no_error(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert class_archive.java_options(tmp_path / "file" / "cache" / "a.jsa", "") == []


def test_conf_has_the_options_of_the_archive_before_those_of_the_pipeline(archive: Path, tmp_path: Path) -> None:
    conf = spark_conf(
        {OPTIONS: "-Xss8m"}, master=None, jars=[], scratch=tmp_path, log=tmp_path / "log", archive=archive
    )
    options = conf[OPTIONS].split()
    assert options[:2] == ["-Xlog:disable", "-Xlog:all=error:stderr"]
    assert options[-1] == "-Xss8m"
