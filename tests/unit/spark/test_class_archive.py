"""The archive of Spark's classes: which one a JVM uses, and how it is written."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from ottla_spark.class_archive import ArchiveWriter, ClassArchive, archive_writing, class_archive, delete_oldest
from ottla_spark.spark_conf import spark_conf
from tests.waiting import eventually

OPTIONS = "spark.driver.extraJavaOptions"
WRITES = """for it; do case "$it" in
  -XX:SharedArchiveFile=*) new="${it#*=}";;
  -XX:SharedClassListFile=*) cat "${it#*=}" > "$0.listed";;
esac; done
echo classes > "$new"
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A java whose script the test can change."""
    found = tmp_path / "bin" / "java"
    found.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    set_script(found, WRITES)
    return found


def set_script(java: Path, script: str) -> None:
    java.write_text(f"#!/bin/sh\n{script}")
    java.chmod(0o755)


@pytest.fixture
def archive(java: Path, tmp_path: Path) -> ClassArchive:
    """An archive that is not written yet, for a JVM that is listing its classes."""
    found = class_archive(tmp_path / "cache", [], tmp_path)
    found.file.parent.mkdir()
    found.class_list.write_text("java/lang/Object\norg/apache/spa")
    return found


def test_other_java_and_other_jars_have_other_archives(java: Path, tmp_path: Path) -> None:
    def file(*jars: Path) -> Path:
        return class_archive(tmp_path, jars, tmp_path).file

    first = file()
    assert file() == first
    jar = tmp_path / "a.jar"
    jar.touch()
    assert file(jar) != first
    os.utime(java, (1, 1))
    assert file() != first


def test_first_run_lists_its_classes_and_later_ones_read_the_archive(archive: ClassArchive, java: Path) -> None:
    assert archive.java_options()[-1] == f"-XX:DumpLoadedClassList={archive.class_list}"
    rows = threading.Event()
    with archive_writing(archive, "/a.jar", rows.is_set):
        assert not archive.file.exists()
        rows.set()
        eventually(archive.file.exists)
    assert Path(f"{java}.listed").read_text() == "java/lang/Object\n", "without the line that is not complete"
    assert archive.java_options()[-1] == f"-XX:SharedArchiveFile={archive.file}"
    assert {it.suffix for it in archive.file.parent.iterdir()} == {".jsa", ".lock"}


def test_end_of_the_run_ends_the_writer_and_leaves_no_file_but_the_lock(archive: ClassArchive, java: Path) -> None:
    set_script(java, f'{WRITES}touch "$0.started"\nexec sleep 600')
    with archive_writing(archive, "/a.jar", lambda: True):
        eventually(Path(f"{java}.started").exists)
    assert [it.suffix for it in archive.file.parent.iterdir()] == [".lock"]


def test_run_without_rows_writes_nothing(archive: ClassArchive, java: Path) -> None:
    with archive_writing(archive, "/a.jar", lambda: False):
        pass
    assert not Path(f"{java}.listed").exists()


def test_jvm_that_fails_to_write_the_archive_leaves_no_file_but_the_lock(archive: ClassArchive, java: Path) -> None:
    set_script(java, f"{WRITES}exit 1")
    ArchiveWriter(archive, "/a.jar").run(lambda: True)
    assert [it.suffix for it in archive.file.parent.iterdir()] == [".lock"]


def test_archive_that_another_run_is_writing_is_left_alone(archive: ClassArchive, java: Path) -> None:
    with archive.file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ArchiveWriter(archive, "/a.jar").run(lambda: True)
    assert not Path(f"{java}.listed").exists()


def test_jvm_that_lists_no_classes_gets_no_archive(archive: ClassArchive, java: Path) -> None:
    archive.class_list.unlink()
    with archive_writing(archive, "/a.jar", lambda: True):
        pass
    assert not Path(f"{java}.listed").exists()


def test_the_newest_archives_stay(tmp_path: Path) -> None:
    for number in range(5):
        old = tmp_path / f"spark-classes-{number}.jsa"
        old.touch()
        os.utime(old, (number, number))
    delete_oldest(tmp_path)
    assert {it.name for it in tmp_path.iterdir()} == {f"spark-classes-{number}.jsa" for number in (2, 3, 4)}


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/own.jsa", "-Xshare:off"])
def test_options_of_the_pipeline_take_precedence(archive: ClassArchive, own: str) -> None:
    assert archive.java_options(own) == ()


def test_folder_that_cannot_be_written_is_no_error(java: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert class_archive(tmp_path / "file" / "cache", [], tmp_path).java_options() == ()


def test_conf_has_the_options_of_the_archive_before_those_of_the_pipeline(
    archive: ClassArchive, tmp_path: Path
) -> None:
    conf = spark_conf(
        {OPTIONS: "-Xss8m"}, master=None, jars=[], scratch=tmp_path, log=tmp_path / "log", archive=archive
    )
    options = conf[OPTIONS].split()
    assert options[:2] == ["-Xlog:disable", "-Xlog:all=error:stderr"]
    assert options[-1] == "-Xss8m"
