"""Jars of the connector and of sinks: verified by digest, and downloaded only if missing."""

from __future__ import annotations

import hashlib
import stat
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from ottla_spark import jars
from ottla_spark.errors import MissingDependency, PipelineError
from ottla_spark.jars import CONNECTOR, EXTRA_JARS, Jar, cache_folder, check_digest, ensure_jars


@pytest.fixture
def jar_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with fake jars, whose digests replace the connector's."""
    fake_jars = tuple(
        Jar(jar.group, jar.artifact, jar.version, hashlib.sha256(jar.artifact.encode()).hexdigest())
        for jar in CONNECTOR
    )
    for jar in fake_jars:
        (tmp_path / jar.file).write_bytes(jar.artifact.encode())
    monkeypatch.setattr(jars, "CONNECTOR", fake_jars)
    return tmp_path


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_java")
def test_nothing_is_downloaded_if_all_jars_exist(jar_folder: Path) -> None:
    assert [path.name for path in ensure_jars(folder=jar_folder)] == [jar.file for jar in CONNECTOR]


@pytest.mark.usefixtures("no_java")
def test_jar_with_another_digest_is_an_error(jar_folder: Path) -> None:
    (jar_folder / CONNECTOR[2].file).write_bytes(b"something else")
    with pytest.raises(PipelineError, match=r"kafka-clients-3.9.0.jar: SHA-256 is"):
        ensure_jars(folder=jar_folder)


@pytest.mark.usefixtures("no_java")
def test_download_needs_java(jar_folder: Path) -> None:
    (jar_folder / CONNECTOR[0].file).unlink()
    with pytest.raises(MissingDependency, match=r"pipelines need Java 17"):
        ensure_jars(folder=jar_folder)


def test_failed_download_is_reported_with_the_reason(
    jar_folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("java")
    command = home / "bin" / "java"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho ':: resolving'; echo '  Server access error: UnknownHostException: example'\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(home))
    (jar_folder / CONNECTOR[0].file).unlink()
    with pytest.raises(
        PipelineError,
        match=r"cannot download org\.apache\.spark:spark-sql-kafka.*UnknownHostException.*without a network",
    ):
        ensure_jars(folder=jar_folder)
    assert not list(jar_folder.glob("fetch-*"))


def test_ivy_module_names_each_jar_without_its_dependencies() -> None:
    root = ElementTree.fromstring(jars._ivy_module(CONNECTOR))
    found = [(d.get("org"), d.get("name"), d.get("rev"), d.get("transitive")) for d in root.iter("dependency")]
    assert found == [(jar.group, jar.artifact, jar.version, "false") for jar in CONNECTOR]


def test_folder_is_the_users_cache_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(jars.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ottla" / "spark-jars"
    monkeypatch.setenv(jars.FOLDER_VARIABLE, "/elsewhere")
    assert cache_folder() == Path("/elsewhere")


def test_digest_is_of_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100_000)
    check_digest(tmp_path / "a", hashlib.sha256(b"a" * 100_000).hexdigest())


def test_sinks_load_the_jars_that_they_need(jar_folder: Path) -> None:
    others = {jar.file for it in EXTRA_JARS.values() for jar in it}
    for jar in (jar for it in EXTRA_JARS.values() for jar in it):
        (jar_folder / jar.file).write_bytes(b"another")
    assert not others & {path.name for path in ensure_jars(("topic", "console"), folder=jar_folder)}
    with pytest.raises(PipelineError, match=r"postgresql-.*SHA-256 is .* delete the file and run again"):
        ensure_jars(("jdbc",), folder=jar_folder)
