"""The folder `.ottla/`: what belongs to whom, and the lock that keeps two `ottla up` from one folder.

.ottla/lock                              held while `ottla up` runs; holds its pid
.ottla/<cluster>/register.json           the cluster's register
.ottla/<cluster>/brokers.json            which brokers there are (local/memory.py)
.ottla/<cluster>/certificates/<digest>/  those of listeners with TLS (local/certificates.py)
.ottla/<cluster>/<id>/data               a broker's log directory
.ottla/<cluster>/<id>/settings.json      what its process was started with
.ottla/<cluster>/<id>/process.json       which process it is
.ottla/<cluster>/<id>/output.log         what it printed
.ottla/<cluster>/pipelines/<name>/       a pipeline: checkpoint, progress.jsonl, process.json, output.log
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path


class HomeLocked(Exception):
    """Another `ottla up` holds the folder."""


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    def cluster(self, name: str) -> Path:
        return self.path / name

    def broker(self, cluster: str, id_: int) -> Path:
        return self.path / cluster / str(id_)

    def pipeline(self, cluster: str, name: str) -> Path:
        return self.path / cluster / "pipelines" / name

    def lock(self) -> int:
        """Takes the folder until this process ends; returns the open lock file. Busy when another process has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise HomeLocked(
                f"another `ottla up` (pid {holder}) is running in {self.path}; stop it first, or give this one its own --home"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd
