"""Class data sharing: Spark's classes, loaded and verified once, not at each start of the JVM.

A third of the processor time until a pipeline's first row is that of loading classes. The first run
with the same Java, jars and PySpark writes those that it has loaded to an archive when it stops
(`-XX:ArchiveClassesAtExit`, JEP 350); later runs map it into memory. An archive that does not fit,
or is damaged, is ignored by the JVM, which then only starts slower.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Final

from ottla_spark.jars import find_java

WRITTEN_WITHIN_S: Final = 20.0
_MAX_KEPT: Final = 3
"""Archives of other jars and versions that stay. Each has 150 MB."""
_SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""The JVM would warn on standard output of classes that cannot be archived."""


def archive_path(folder: Path, jars: Sequence[Path]) -> Path:
    """The archive for these jars and the installed Java and PySpark."""
    digest = hashlib.sha256("\n".join(_describe(jars)).encode()).hexdigest()[:16]
    return folder / f"spark-classes-{digest}.jsa"


def _describe(jars: Sequence[Path]) -> Iterator[str]:
    """What the JVM compares before it uses an archive."""
    spark = find_spec("pyspark")
    folders = [Path(it) / "jars" for it in (spark.submodule_search_locations or ())] if spark else []
    for path in (Path(find_java()).resolve(), *folders, *jars):
        with suppress(OSError):
            yield f"{path} {path.stat().st_mtime_ns}"


def java_options(archive: Path, own: str) -> list[str]:
    """JVM options that read the archive, or write it if there is none. `own`: the pipeline's own
    options, which may name another archive.
    """
    if "Archive" in own or "-Xshare" in own:
        return []
    if archive.exists():
        return [*_SILENT, f"-XX:SharedArchiveFile={archive}"]
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # no home folder, for example
        return []
    if not os.access(archive.parent, os.W_OK):  # in an image, for example
        return []
    _delete_abandoned(archive)
    return [*_SILENT, f"-XX:ArchiveClassesAtExit={new_path(archive)}"]


def _delete_abandoned(archive: Path) -> None:
    """Deletes what a JVM has left that was killed while it wrote."""
    for it in archive.parent.glob(f"{archive.stem}.*"):
        if it.suffix[1:].isdigit() and not Path(f"/proc/{it.suffix[1:]}").exists():
            it.unlink(missing_ok=True)


def new_path(archive: Path) -> Path:
    """Where this process has the JVM write the archive, before it is renamed."""
    return archive.with_suffix(f".{os.getpid()}")


def await_archive(archive: Path, gateway: Any) -> None:
    """Ends the JVM and waits until it has written the archive, where it does. `gateway`: py4j's."""
    java: Popen[bytes] | None = getattr(gateway, "proc", None)
    if archive.exists() or java is None or java.stdin is None:
        return
    gateway.shutdown()
    java.stdin.close()  # at its end the JVM exits
    try:
        java.wait(WRITTEN_WITHIN_S)
        new_path(archive).replace(archive)
    except (TimeoutExpired, FileNotFoundError):
        return  # the next run tries it again
    kept = sorted(archive.parent.glob("spark-classes-*.jsa"), key=lambda it: it.stat().st_mtime)
    for old in kept[: -_MAX_KEPT - 1]:
        old.unlink(missing_ok=True)
