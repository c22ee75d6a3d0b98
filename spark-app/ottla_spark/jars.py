"""Jars of Spark's Kafka connector and of the sinks that need more: downloaded once by Maven
coordinates, verified by digest, kept in a cache folder.

A pipeline loads the connector and what its own sinks need. An image that contains them starts
without a network. Ivy, which PySpark includes, downloads them; it runs as a command with its own
configuration of repositories.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla_spark.errors import MissingDependency, PipelineError

FOLDER_VARIABLE: Final = "OTTLA_SPARK_JARS"
"""Environment variable that names the folder of the jars, for example in images."""


@dataclass(frozen=True, slots=True)
class Jar:
    """Maven coordinates of an artifact, and the SHA-256 of its file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


# The connector has the version of Spark. kafka-clients and commons-pool2 are the versions that it
# was built with.
CONNECTOR: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.0.0",
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka", "kafka-clients", "3.9.0", "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18"
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.0",
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)

EXTRA_JARS: Final[Mapping[str, tuple[Jar, ...]]] = {
    "jdbc": (
        Jar(
            "org.postgresql",
            "postgresql",
            "42.7.7",
            "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
        ),
    ),
    "iceberg": (
        Jar(
            "org.apache.iceberg",
            "iceberg-spark-runtime-4.0_2.13",
            "1.11.0",
            "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
        ),
    ),
    "delta": (
        Jar(
            "io.delta",
            "delta-spark_2.13",
            "4.0.1",
            "a1e76860b19fe1e6b205a4ea7a9099a2f9575d39bb71d49b3e679b299d0efb91",
        ),
        Jar(
            "io.delta",
            "delta-storage",
            "4.0.1",
            "ecc42c5aaa51c423312d9e4e48aa4a12b34740bf2c37de0e8f279277ec3d12e4",
        ),
    ),
    "sqlite": (
        Jar(
            "org.xerial",
            "sqlite-jdbc",
            "3.50.3.0",
            "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
        ),
    ),
    # Iceberg's bundle is the part of AWS's SDK that a lake needs. It lacks the transfer manager,
    # whose version is that of the SDK in the bundle. The others have Spark's versions.
    "s3": (
        Jar(
            "org.apache.hadoop",
            "hadoop-aws",
            "3.4.1",
            "01334a07e179cae2b7e251f24857f11e3759108c9d6a79dcbe362a4295227da2",
        ),
        Jar(
            "org.apache.iceberg",
            "iceberg-aws-bundle",
            "1.11.0",
            "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
        ),
        Jar(
            "software.amazon.awssdk",
            "s3-transfer-manager",
            "2.44.4",
            "dbcad736b19f6eb8471f9edf027d9fffe994228f25f415894efd01fd80cb6c02",
        ),
        Jar(
            "org.apache.spark",
            "spark-hadoop-cloud_2.13",
            "4.0.0",
            "5e333036e1cee2b328699f1f0bce76f33cc4115a06a50ad9b1057b602fee52bf",
        ),
    ),
}
"""Name of a sink, of the database of an Iceberg catalog, or s3 for object stores → the jars that
pipelines with it need beside the connector.
"""

_DOWNLOAD_TIMEOUT_S: Final = 600


def cache_folder() -> Path:
    """$OTTLA_SPARK_JARS, or ottla/spark-jars in the user's cache."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "spark-jars"


def ensure_jars(
    names: Iterable[str] = (), folder: Path | None = None, notify: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Paths of the jars of the connector and of the entries of EXTRA_JARS with these names. Those
    that are missing are downloaded. Names that EXTRA_JARS lacks need no jars.

    Raises PipelineError if they cannot be downloaded or a digest differs. `notify` takes a message
    before a download.
    """
    folder = folder or cache_folder()
    jars = (*CONNECTOR, *(jar for name in sorted(set(names)) for jar in EXTRA_JARS.get(name, ())))
    if missing := tuple(jar for jar in jars if not (folder / jar.file).exists()):
        notify(f"downloading {', '.join(jar.file for jar in missing)} to {folder}")
        _download(missing, folder)
    for jar in jars:
        check_digest(folder / jar.file, jar.sha256)
    return [folder / jar.file for jar in jars]


def check_digest(file: Path, sha256: str) -> None:
    """Raises PipelineError if the file has another digest."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != sha256:
        raise PipelineError(f"{file}: SHA-256 is {found}, expected {sha256}; delete the file and run again")


def _download(jars: tuple[Jar, ...], folder: Path) -> None:
    """Downloads to a temporary folder first, so that an interrupted download leaves no partial
    file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_ivy_module(jars))
        ivy = subprocess.run(
            [
                find_java(), "-cp", str(_find_ivy()), "org.apache.ivy.Main",
                "-m2compatible", "-novalidate", "-ivy", str(module), "-cache", str(Path(scratch) / "cache"),
                "-types", "jar", "-retrieve", f"{scratch}/[artifact]-[revision].[ext]",
            ],
            capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False,
        )  # fmt: skip
        for jar in jars:
            downloaded = Path(scratch) / jar.file
            if not downloaded.exists():
                raise PipelineError(
                    f"cannot download {jar.group}:{jar.artifact}:{jar.version}: {_failure(ivy.stdout + ivy.stderr)}; "
                    f"without a network, copy {jar.file} to {folder}"
                )
            check_digest(downloaded, jar.sha256)
            downloaded.replace(folder / jar.file)


def _ivy_module(jars: tuple[Jar, ...]) -> str:
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"'
        ' transitive="false" conf="default->master"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="dev.ottla" module="spark-jars"/>'
        "<configurations><conf "
        f'name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _failure(output: str) -> str:
    """The most specific line of Ivy's output."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    for pattern in ("UnknownHostException", "ConnectException", "timed out", "not found", "ERROR", "Exception"):
        for line in lines:
            if pattern in line:
                return line
    return lines[-1] if lines else "no answer"


def find_java() -> str:
    """Path of java in $JAVA_HOME or on the PATH. Raises MissingDependency."""
    if (home := os.environ.get("JAVA_HOME")) and (found := Path(home) / "bin" / "java").exists():
        return str(found)
    if on_path := shutil.which("java"):
        return on_path
    raise MissingDependency(
        "pipelines need Java 17 or newer, but it is neither in JAVA_HOME nor on the PATH (brokers need no Java)"
    )


def _find_ivy() -> Path:
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise MissingDependency("pipelines need PySpark: pip install 'ottla[spark]'")
    jars = sorted((Path(found.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))
    if not jars:
        raise MissingDependency("the installation of PySpark is incomplete: it has no Ivy to download jars with")
    return jars[-1]
