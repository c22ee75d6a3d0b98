"""The jars that Spark needs to speak with brokers: fetched once by their coordinates, checked by digest, kept in a
cache folder.

Nothing is fetched when they are there, so an image that was built with them starts without a network. The fetching is
done by Ivy, which PySpark carries, run as a plain command with its own notion of where artifacts come from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla_spark.trouble import NotInstalled, Trouble

FOLDER_VARIABLE: Final = "OTTLA_SPARK_JARS"
"""Environment variable: the folder that holds the jars, in images for example."""


@dataclass(frozen=True, slots=True)
class Jar:
    """An artifact by its Maven coordinates, with the SHA-256 of its bytes."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


# The connector is pinned to Spark's version; clients and pool are the ones that it was built with.
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

_FETCH_SECONDS: Final = 300


def cache_folder() -> Path:
    """Where the jars are kept: $OTTLA_SPARK_JARS, or ottla/spark-jars in the user's cache."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "spark-jars"


def connector(folder: Path | None = None, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Paths of the connector's jars, fetched first if any is missing.

    Trouble when they cannot be had or are not what they should be.
    """
    folder = folder or cache_folder()
    if any(not (folder / jar.file).exists() for jar in CONNECTOR):
        say(f"fetching Spark's Kafka connector into {folder}, once")
        _fetch(CONNECTOR, folder)
    for jar in CONNECTOR:
        check(folder / jar.file, jar.sha256)
    return [folder / jar.file for jar in CONNECTOR]


def check(file: Path, sha256: str) -> None:
    """Trouble unless the file's bytes have this digest."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != sha256:
        raise Trouble(
            f"{file} is not what it should be: its SHA-256 is {found}, expected {sha256}; delete it and run again"
        )


def _fetch(jars: tuple[Jar, ...], folder: Path) -> None:
    """Fetches into a folder of its own first, so that an interrupted fetch leaves nothing half done."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
        wish = Path(scratch) / "ivy.xml"
        wish.write_text(_wish(jars))
        done = subprocess.run(
            [
                java(), "-cp", str(_ivy()), "org.apache.ivy.Main",
                "-m2compatible", "-novalidate", "-ivy", str(wish), "-cache", str(Path(scratch) / "cache"),
                "-types", "jar", "-retrieve", f"{scratch}/[artifact]-[revision].[ext]",
            ],
            capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False,
        )  # fmt: skip
        for jar in jars:
            fetched = Path(scratch) / jar.file
            if not fetched.exists():
                raise Trouble(
                    f"cannot fetch {jar.group}:{jar.artifact}:{jar.version}: {_reason(done.stdout + done.stderr)}; "
                    f"without a network, put {jar.file} into {folder} by hand"
                )
            check(fetched, jar.sha256)
            fetched.replace(folder / jar.file)


def _wish(jars: tuple[Jar, ...]) -> str:
    wanted = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"'
        ' transitive="false" conf="default->master"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="dev.ottla" module="spark-jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
    )


def _reason(output: str) -> str:
    """The line of Ivy's report that says most."""
    lines = [line.strip(" :\t") for line in output.splitlines()]
    for sign in ("UnknownHostException", "ConnectException", "timed out", "not found", "ERROR", "Exception"):
        for line in lines:
            if sign in line:
                return line
    return lines[-1] if lines else "no answer"


def java() -> str:
    """Path of the Java command: $JAVA_HOME's, or the one on the PATH. Trouble when there is none."""
    if (home := os.environ.get("JAVA_HOME")) and (found := Path(home) / "bin" / "java").exists():
        return str(found)
    if on_path := shutil.which("java"):
        return on_path
    raise NotInstalled(
        "pipelines need Java 17 or newer, and there is no java on the PATH and no JAVA_HOME (brokers need none)"
    )


def _ivy() -> Path:
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise NotInstalled("pipelines need PySpark: pip install 'ottla[spark]'")
    jars = sorted((Path(found.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))
    if not jars:
        raise NotInstalled("this PySpark carries no Ivy to fetch jars with; it is not a whole installation")
    return jars[-1]
