"""The interface through which the broker accesses files. `OsDisk` is the operating system's; the
simulation has its own, which loses unsynced writes.

All calls block. The caller makes those that wait for the device (`sync`, `sync_directory`,
`replace_file`, `remove_tree`) off the event loop's thread (`Runtime.run_in_thread`), except where
no other step may come before they are done, as in a truncation. Every path is a plain string
below one of the broker's `log.dirs`.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol


class File(Protocol):
    """An open file. Offsets and sizes in bytes. Errors are OSError."""

    @property
    def path(self) -> str: ...
    def size(self) -> int: ...
    def read(self, count: int, at: int) -> bytes:
        """Returns `count` bytes from position `at`, or fewer at the end of the file."""
        ...

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Writes all buffers at the end as one gathered write; returns the bytes written.

        A short write is completed or, on an error, undone: the file then holds all of it or none of
        it.
        """
        ...

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """Returns when the file's data are on stable storage (fdatasync)."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that is held until it is released or the process ends."""

    def release(self) -> None: ...


class LockHeld(Exception):
    """Another process, or another broker in this process, holds the lock. `holder`: its process id,
    0 if unknown."""

    def __init__(self, path: str, holder: int) -> None:
        super().__init__(f"{path} is locked by " + (f"process {holder}" if holder else "another process"))
        self.path = path
        self.holder = holder


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def file_size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted, so that a replay sees the same order."""
        ...

    def make_directory(self, path: str) -> None: ...
    def read_file(self, path: str) -> bytes: ...
    def replace_file(self, path: str, data: bytes) -> None:
        """Writes a small file so that a crash leaves the old or the new content, whole.

        It is written under another name, synced and renamed, and the directory is synced.
        """
        ...

    def rename(self, old: str, new: str) -> None: ...
    def remove(self, path: str) -> None:
        """Removes a file, if it exists."""
        ...

    def remove_tree(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def lock(self, path: str) -> Lock:
        """Takes the lock file, which is created if need be. Raises LockHeld."""
        ...


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a small file's content without waiting for the device. A crash can leave a part of
    it."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append((data,))
    finally:
        file.close()


class FileSystemSpace(NamedTuple):
    """Bytes of the file system that holds a directory; −1 if unknown."""

    total: int
    usable: int


def read_file_system_space(path: str) -> FileSystemSpace:
    """Blocks. Unknown below a simulated disk, which has no file system."""
    try:
        found = os.statvfs(path)
    except OSError:
        return FileSystemSpace(-1, -1)
    return FileSystemSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class OsFile:
    """A `File` on the operating system's disk."""

    __slots__ = ("_fd", "_size", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._size = os.fstat(fd).st_size

    def size(self) -> int:
        return self._size

    def read(self, count: int, at: int) -> bytes:
        data = os.pread(self._fd, count, at)
        while len(data) < count and (more := os.pread(self._fd, count - len(data), at + len(data))):
            data += more
        return data

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        size = sum(map(len, buffers))
        try:
            written = os.pwritev(self._fd, buffers, self._size)
            if written < size:
                self._write_rest(b"".join(buffers)[written:], self._size + written)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += size
        return size

    def _write_rest(self, rest: bytes, at: int) -> None:
        view = memoryview(rest)
        while view:
            done = os.pwrite(self._fd, view, at)
            view, at = view[done:], at + done

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsLock:
    """A POSIX record lock, the kind that Apache Kafka takes: the two exclude each other.

    Such locks do not exclude each other within one process; `_held` does that.
    """

    __slots__ = ("_fd", "_path")
    _held: ClassVar[set[str]] = set()

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        if self._path in self._held:
            raise LockHeld(path, os.getpid())
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 20, 0).strip()
            os.close(self._fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise LockHeld(path, int(holder) if holder.isdigit() else 0) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        self._held.add(self._path)

    def release(self) -> None:
        if self._path in self._held:
            self._held.discard(self._path)
            os.ftruncate(self._fd, 0)
            os.close(self._fd)


class OsDisk:
    """A `Disk` that is the operating system's."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644))

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def file_size(self, path: str) -> int:
        return Path(path).stat().st_size

    def modified_ms(self, path: str) -> int:
        return Path(path).stat().st_mtime_ns // 1_000_000

    def list(self, directory: str) -> list[str]:
        return sorted(entry.name for entry in os.scandir(directory))

    def make_directory(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def read_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def replace_file(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        Path(temporary).replace(path)
        self.sync_directory(str(Path(path).parent))

    def rename(self, old: str, new: str) -> None:
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        import shutil  # half a MiB, and most brokers remove no folder

        shutil.rmtree(path, ignore_errors=True)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        return OsLock(path)
