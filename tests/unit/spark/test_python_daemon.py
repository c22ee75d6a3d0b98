"""Python's workers: archives are read again only if they have changed, and connections of tasks do
not delay small writes.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from pyspark import daemon

from ottla_spark.streaming.python_daemon import with_quick_acknowledgements

_READS_AGAIN = """\
import importlib, os, sys, zipimport
from ottla_spark.streaming.python_daemon import read_changed_archives_only

reads = []
read = zipimport._read_directory
zipimport._read_directory = lambda archive: (reads.append(os.path.basename(archive)), read(archive))[1]
read_changed_archives_only()
sys.path.append(sys.argv[1])
import first
importlib.invalidate_caches()
reads.clear()
importlib.invalidate_caches()
print(reads)
os.replace(sys.argv[2], sys.argv[1])
importlib.invalidate_caches()
print(reads)
import second
os.unlink(sys.argv[1])
importlib.invalidate_caches()
try:
    import third
except ImportError as error:
    print(error)
"""


def write_archive(file: Path, *modules: str) -> Path:
    with ZipFile(file, "w") as archive:
        for name in modules:
            archive.writestr(f"{name}.py", "")
    return file


def test_archive_is_read_again_if_it_has_changed(tmp_path: Path) -> None:
    old, new = write_archive(tmp_path / "old.zip", "first"), write_archive(tmp_path / "new.zip", "second", "third")
    # In a process of its own: the script changes how Python imports.
    command = [sys.executable, "-c", _READS_AGAIN, str(old), str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[]", "['old.zip']", "No module named 'third'"], done.stderr


def test_connection_of_a_task_does_not_delay_small_writes() -> None:
    seen: list[int] = []

    def run(connection: socket.socket, is_authenticated: bool) -> int:
        seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return 7 if is_authenticated else 0

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        assert with_quick_acknowledgements(run)(one, True) == 7
    assert seen == [1]
    one, other = socket.socketpair()  # without TCP
    with one, other:
        assert with_quick_acknowledgements(lambda connection, is_authenticated: 1)(one, False) == 1


def test_daemon_of_pyspark_has_what_is_replaced() -> None:
    assert daemon.worker.__code__.co_argcount == 2
    assert "worker" in daemon.manager.__code__.co_names
