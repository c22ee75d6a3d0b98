"""Apache Kafka's own programs, for tests and the benchmark: fetched by Maven coordinates, kept outside the checkout.

The jars lie in `$XDG_CACHE_HOME/ottla/jars/<version>` (`~/.cache/…` without it). Maven fetches them where it is
installed; else Ivy does, which PySpark brings along as one jar. Neither is told where to fetch from: that is the
machine's own configuration.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from zlib import crc32

import pytest

from tests.locks import locked

KAFKA = "4.1.1"
# slf4j-simple is set up by system properties alone, so that no logging configuration has to lie anywhere.
COORDINATES = (
    "org.apache.kafka:kafka_2.13:{version}",
    "org.apache.kafka:kafka-tools:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
# MirrorMaker 2, which is a set of connectors and the program that runs them.
MIRROR_MAKER = (
    "org.apache.kafka:connect-mirror:{version}",
    "org.apache.kafka:connect-runtime:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
# Kafka Connect with the connectors for files, and Kafka Streams.
CONNECT = (
    "org.apache.kafka:connect-file:{version}",
    "org.apache.kafka:connect-runtime:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
STREAMS = ("org.apache.kafka:kafka-streams:{version}", "org.slf4j:slf4j-simple:1.7.36")
# A tool lives for a second, a test's broker for some: the second compiler and parallel collection would cost more than they bring.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


class JarsMissing(Exception):
    """The jars are not in the cache, and cannot be fetched. The text says why."""


def unavailable(reason: str) -> NoReturn:
    """Something the machine should bring is missing: CI fails, a person's run skips and says why."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def kafka_classpath(version: str = KAFKA, coordinates: Sequence[str] = COORDINATES) -> str:
    """A value for `java -cp`; fetches what is missing. For tests: without a way to fetch, see `unavailable`."""
    try:
        return fetched_classpath(version, coordinates)
    except JarsMissing as reason:
        unavailable(str(reason))


def fetched_classpath(version: str = KAFKA, coordinates: Sequence[str] = COORDINATES) -> str:
    """A value for `java -cp`; JarsMissing when the jars cannot be had."""
    wanted = [one.format(version=version) for one in coordinates]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "jars"
    home.mkdir(parents=True, exist_ok=True)
    name = version if coordinates is COORDINATES else f"{coordinates[0].split(':')[1]}-{version}"
    folder = home / name
    with locked(home / f"{name}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as scratch:
                jars = Path(scratch) / "jars"
                _fetcher()(wanted, Path(scratch), jars)
                for other in jars.glob("slf4j-reload4j-*.jar"):
                    other.unlink()  # older ones bring a logger of their own, which would be chosen by chance
                jars.rename(folder)  # all of them or none: a fetch that was cut leaves nothing behind
    return f"{folder}/*"


def java(classpath: str, main: str, *arguments: str, options: Sequence[str] = (), jvm: Sequence[str] = ()) -> list[str]:
    """The command line of one of Kafka's programs, quiet but for warnings. `jvm`: instead of what programs get that live for a test."""
    chosen = jvm or (*SHORT_LIVED, *archived(classpath))
    return [java_program(), *chosen, *QUIET, *options, "-cp", classpath, main, *arguments]


def archived(classpath: str) -> tuple[str, ...]:
    """The option with which a JVM finds the classes of these jars ready; none while nobody has laid them out (`tests/class_archives.py`)."""
    path = class_archive(classpath)
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() else ()


def class_archive(classpath: str) -> Path:
    """Where it lies: beside the jars, and for the Java that we have, because no other one reads it."""
    program = Path(java_program()).resolve()
    mark = crc32(f"{program} {program.stat().st_mtime_ns}".encode())
    folder = Path(classpath).parent
    return folder.with_name(f"{folder.name}-{mark:08x}.jsa")


def java_program() -> str:
    """The `java` of JAVA_HOME or of PATH. JarsMissing without one."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if found is None:
        raise JarsMissing("no `java` on PATH and no JAVA_HOME: Kafka's own programs need a Java 17 runtime")
    return found


def _fetcher() -> Callable[[Sequence[str], Path, Path], None]:
    java_program()
    if shutil.which("mvn"):
        return _with_maven
    if (ivy := _ivy_jar()) is not None:
        return lambda wanted, scratch, jars: _with_ivy(ivy, wanted, scratch, jars)
    raise JarsMissing("neither Maven (`mvn`) nor PySpark's Ivy is there to fetch Kafka's jars")


def _ivy_jar() -> Path | None:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        return None
    return next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"), None)


def _with_maven(wanted: Sequence[str], scratch: Path, jars: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (coordinates.split(":") for coordinates in wanted)
    )
    pom = scratch / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
    _run(
        [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        ],
        jars,
    )


def _with_ivy(ivy: Path, wanted: Sequence[str], scratch: Path, jars: Path) -> None:
    dependencies = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default"/>'
        for group, artifact, version in (coordinates.split(":") for coordinates in wanted)
    )
    module = scratch / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="ottla" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    pattern = f"{jars}/[artifact]-[revision](-[classifier]).[ext]"
    _run(
        [
            java_program(),
            "-jar",
            str(ivy),
            "-warn",
            "-ivy",
            str(module),
            "-confs",
            "default",
            "-types",
            "jar",
            "bundle",
            "-retrieve",
            pattern,
        ],
        jars,
    )


def _run(command: list[str], jars: Path) -> None:
    print("fetching Apache Kafka's jars:", *command, file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(jars.glob("kafka-clients-*.jar")):
        said = done.stdout[-2000:] + done.stderr[-2000:]
        raise JarsMissing(f"fetching Kafka's jars failed ({command[0]}, exit code {done.returncode}):\n{said}")
