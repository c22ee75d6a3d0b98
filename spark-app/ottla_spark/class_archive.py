"""An archive of Spark's classes, which a JVM maps into memory instead of loading them from jars
(class data sharing, JEP 310).

Without it, loading and verifying classes takes a third of the processor time until a pipeline's
first row. The JVM of the first run lists the classes that it loads. When it has processed its first
rows, a process of the lowest priority writes the archive. A run that stops earlier ends that
process, and the next run tries again. The JVM ignores an archive that does not fit its version or
its jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Final

from ottla_spark.jars import find_java

_MAX_KEPT: Final = 3
"""Number of archives that are kept, also for other jars and versions. Each takes 200 MB."""
_POLL_S: Final = 1.0
_SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Otherwise the JVM prints a warning to standard output if the archive does not fit."""
_WRITER: Final = ("-Xshare:dump", "-Xlog:disable", "-Xmx512m", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """file: exists once it is written. class_list: the running JVM lists its classes there, if
    there is no archive yet.
    """

    file: Path
    class_list: Path

    def java_options(self, own: str = "") -> tuple[str, ...]:
        """JVM options that read the archive, or list classes if there is none. Empty if `own`, the
        pipeline's own options, has -Xshare or names an archive, or if there is no archive and its
        folder is not writable.
        """
        if "Archive" in own or "-Xshare" in own:
            return ()
        if self.file.exists():
            return (*_SILENT, f"-XX:SharedArchiveFile={self.file}")
        if not ensure_writable_folder(self.file.parent):
            return ()
        return (*_SILENT, f"-XX:DumpLoadedClassList={self.class_list}")


def class_archive(folder: Path, jars: Sequence[Path], scratch: Path) -> ClassArchive:
    """The archive for these jars and the installed Java and PySpark."""
    digest = hashlib.sha256("\n".join(_describe(jars)).encode()).hexdigest()[:16]
    return ClassArchive(folder / f"spark-classes-{digest}.jsa", scratch / "classes.txt")


def _describe(jars: Sequence[Path]) -> Iterator[str]:
    """What the JVM compares before it uses an archive."""
    spark = find_spec("pyspark")
    folders = [Path(it) / "jars" for it in (spark.submodule_search_locations or ())] if spark else []
    for path in (Path(find_java()).resolve(), *folders, *jars):
        with suppress(OSError):
            yield f"{path} {path.stat().st_mtime_ns}"


def ensure_writable_folder(folder: Path) -> bool:
    """Creates the folder if it is missing. Returns False if it is not writable: a read-only folder
    of an image, for example, or one in a home folder that does not exist.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


@contextmanager
def archive_writing(archive: ClassArchive, classpath: str, has_rows: Callable[[], bool]) -> Iterator[None]:
    """While the block runs, another process writes the archive, once `has_rows` is true. The end of
    the block ends that process. Nothing is written if the JVM does not list its classes, because it
    has an archive, for example. `classpath`: that of the running JVM.
    """
    if not archive.class_list.exists():
        yield
        return
    writer = ArchiveWriter(archive, classpath)
    thread = threading.Thread(target=writer.run, args=(has_rows,), name="class archive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        writer.stop()
        thread.join()


class ArchiveWriter:
    """Writes one archive. `stop` may be called in another thread."""

    def __init__(self, archive: ClassArchive, classpath: str) -> None:
        self._archive = archive
        self._classpath = classpath
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self, has_rows: Callable[[], bool]) -> None:
        """Waits until `has_rows` is true, and writes the archive. Returns early after `stop`, or if
        another process is writing it.
        """
        while not has_rows():
            if self._stopped.wait(_POLL_S):
                return
        with suppress(OSError), self._archive.file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another pipeline may be writing it
            if not self._archive.file.exists():
                self._write(self._archive.file.with_suffix(".new"))

    def _write(self, new: Path) -> None:
        listed = self._archive.class_list
        complete = listed.with_suffix(".complete")
        text = listed.read_bytes()
        complete.write_bytes(text[: text.rfind(b"\n") + 1])  # the JVM is still writing the last line
        files = (f"-XX:SharedClassListFile={complete}", f"-XX:SharedArchiveFile={new}")
        command = ("nice", "-n", "19", find_java(), *_WRITER, *files, "-cp", self._classpath)
        process = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        while process.poll() is None:
            if self._stopped.wait(_POLL_S):
                process.kill()
                process.wait()
        if process.returncode == 0 and new.exists():
            new.replace(self._archive.file)
            delete_oldest(self._archive.file.parent)
        else:
            new.unlink(missing_ok=True)


def delete_oldest(folder: Path) -> None:
    """Keeps the newest archives. A JVM that has mapped a deleted archive can still read its
    pages.
    """
    newest_first = sorted(folder.glob("spark-classes-*.jsa"), key=lambda it: it.stat().st_mtime, reverse=True)
    for old in newest_first[_MAX_KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)
