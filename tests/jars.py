"""Java programs, such as Apache Kafka's own, fetched by Maven coordinates and stored outside the
checkout.

The jars lie in `$XDG_CACHE_HOME/ottla/jars/<version>` (default `~/.cache`). Maven fetches them
where it is installed, otherwise Ivy, which PySpark includes as one jar. They fetch from the
repository that the machine's configuration names.
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

from tests.locks import file_lock

KAFKA = "4.1.1"
KAFKA_4_2 = "4.2.0"  # the first with share groups and streams groups for production
KAFKA_4_3 = "4.3.1"  # the newest: for share groups, streams groups and unstable APIs
# slf4j-simple is configured by system properties alone and needs no configuration file.
COORDINATES = (
    "org.apache.kafka:kafka_2.13:{version}",
    "org.apache.kafka:kafka-tools:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
# MirrorMaker 2: connectors and the program that runs them.
MIRROR_MAKER = (
    "org.apache.kafka:connect-mirror:{version}",
    "org.apache.kafka:connect-runtime:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
# Kafka Connect with the file connectors, and Kafka Streams.
CONNECT = (
    "org.apache.kafka:connect-file:{version}",
    "org.apache.kafka:connect-runtime:{version}",
    "org.slf4j:slf4j-simple:1.7.36",
)
STREAMS = ("org.apache.kafka:kafka-streams:{version}", "org.slf4j:slf4j-simple:1.7.36")
# A tool lives for one second, a test's broker for a few: the C2 compiler and parallel GC would cost
# more than they save.
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


class JarsUnavailable(Exception):
    """The jars are not in the cache and cannot be fetched; the message says why."""


def skip_or_fail_in_ci(reason: str) -> NoReturn:
    """Fails in continuous integration (CI is set), otherwise skips: the machine lacks something
    that the test needs.
    """
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def kafka_classpath(version: str = KAFKA, coordinates: Sequence[str] = COORDINATES) -> str:
    """A value for `java -cp`. Skips the test, or fails in CI, if the jars cannot be fetched."""
    try:
        return fetch_classpath(version, coordinates)
    except JarsUnavailable as reason:
        skip_or_fail_in_ci(str(reason))


def fetch_classpath(version: str = KAFKA, coordinates: Sequence[str] = COORDINATES) -> str:
    """A value for `java -cp`; missing jars are fetched. Raises JarsUnavailable.

    Coordinates are group:artifact:version, or group:artifact:version:classifier with Maven alone.
    """
    wanted = [one.format(version=version) for one in coordinates]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "jars"
    home.mkdir(parents=True, exist_ok=True)
    # Each other list of coordinates has a folder of its own.
    mark = crc32(" ".join(wanted).encode())
    name = version if coordinates is COORDINATES else f"{coordinates[0].split(':')[1]}-{version}-{mark:08x}"
    folder = home / name
    with file_lock(home / f"{name}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as scratch:
                jars = Path(scratch) / "jars"
                _choose_fetcher()(wanted, Path(scratch), jars)
                for other in jars.glob("slf4j-reload4j-*.jar"):
                    # Older versions include a second logger, and slf4j would choose one of the two
                    # at random.
                    other.unlink()
                jars.rename(folder)  # atomic: an interrupted fetch leaves nothing behind
    return f"{folder}/*"


def java_command(
    classpath: str, main: str, *arguments: str, options: Sequence[str] = (), jvm: Sequence[str] = ()
) -> list[str]:
    """The command line of a Java program, which logs warnings only. `jvm` replaces the options for
    a short-lived JVM.
    """
    chosen = jvm or (*SHORT_LIVED_JVM, *class_archive_options(classpath))
    return [java_program(), *chosen, *QUIET, *options, "-cp", classpath, main, *arguments]


def class_archive_options(classpath: str) -> tuple[str, ...]:
    """The JVM option that loads the classes of these jars from their archive
    (`tests/class_archives.py`), if there is one.
    """
    path = class_archive_path(classpath)
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() else ()


def class_archive_path(classpath: str) -> Path:
    """The archive's path, beside the jars. Each Java installation has its own, because no other can
    read it.
    """
    program = Path(java_program()).resolve()
    mark = crc32(f"{program} {program.stat().st_mtime_ns}".encode())
    folder = Path(classpath).parent
    return folder.with_name(f"{folder.name}-{mark:08x}.jsa")


def java_program() -> str:
    """The `java` of JAVA_HOME or PATH. Raises JarsUnavailable."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if found is None:
        raise JarsUnavailable("no `java` on PATH and no JAVA_HOME: Kafka's own programs need a Java 17 runtime")
    return found


def _choose_fetcher() -> Callable[[Sequence[str], Path, Path], None]:
    java_program()
    if shutil.which("mvn"):
        return _fetch_with_maven
    if (ivy := _ivy_jar()) is not None:
        return lambda wanted, scratch, jars: _fetch_with_ivy(ivy, wanted, scratch, jars)
    raise JarsUnavailable("fetching Kafka's jars needs Maven (`mvn`) or PySpark's Ivy")


def _ivy_jar() -> Path | None:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        return None
    return next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"), None)


def _fetch_with_maven(wanted: Sequence[str], scratch: Path, jars: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{''.join(f'<classifier>{it}</classifier>' for it in classifier)}</dependency>"
        for group, artifact, version, *classifier in (coordinates.split(":") for coordinates in wanted)
    )
    pom = scratch / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>ottla</groupId><artifactId>jars</artifactId><version>1</version>"
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


def _fetch_with_ivy(ivy: Path, wanted: Sequence[str], scratch: Path, jars: Path) -> None:
    if any(coordinates.count(":") > 2 for coordinates in wanted):
        raise JarsUnavailable("jars with a classifier are fetched with Maven alone, and there is no `mvn` on PATH")
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
    print("fetching jars:", *command, file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(jars.glob("*.jar")):
        output = done.stdout[-2000:] + done.stderr[-2000:]
        raise JarsUnavailable(f"fetching jars failed ({command[0]}, exit code {done.returncode}):\n{output}")
