"""A disk in memory that distinguishes synced data from data in the page cache.

For each file it keeps the content as programs see it, the content on the device, and the unsynced
writes; for each directory the same with names. A killed process loses nothing. A power loss keeps a
random prefix of the unsynced changes of each file and directory, and may keep a part of the next
write. Syncs in offloaded calls (`SimulatedExecutor`) take virtual time and count from their end on.
It is stricter than journalling file systems: a name is safe only after its directory was synced.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from random import Random
from typing import TypeVar, cast

from ottla_broker.log.disk import LockHeld

T = TypeVar("T")

CALL_S = 0.00005  # duration of an offloaded call without its syncs


class _File:
    """A file's content and its durable part.

    `writes` are (time, position, bytes), or (time, size, None) for a truncation.
    """

    __slots__ = ("content", "durable", "modified_ms", "writes")

    def __init__(self, now_ms: int) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.writes: list[tuple[float, int, bytes | None]] = []
        self.modified_ms = now_ms

    def write(self, when_s: float, at: int, data: bytes | None) -> None:
        _apply(self.content, at, data)
        self.writes.append((when_s, at, data))

    def make_durable(self, when_s: float) -> None:
        for when, at, data in self.writes:
            if when <= when_s:
                _apply(self.durable, at, data)
        self.writes = [one for one in self.writes if one[0] > when_s]

    def lose_power(self, random: Random, now_s: float) -> int:
        """Drops unsynced writes at random. Returns by how many bytes the file is shorter."""
        before = len(self.content)
        completed = [(at, data) for when, at, data in self.writes if when <= now_s]
        kept = _survivors(random, len(completed))
        for at, data in completed[:kept]:
            _apply(self.durable, at, data)
        if kept < len(completed) and random.randrange(2):
            at, data = completed[kept]
            if data:
                _apply(self.durable, at, data[: random.randrange(len(data) + 1)])
        self.writes.clear()
        self.content[:] = self.durable
        return before - len(self.content)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        if at < len(content):
            del content[at:]
        else:
            content.extend(bytes(at - len(content)))
    else:
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data


def _survivors(random: Random, count: int) -> int:
    """Number of unsynced changes that survive: none, all or a random number, with equal
    probabilities.
    """
    return (0, count, random.randrange(count + 1))[random.randrange(3)] if count else 0


class _Directory:
    """Names in a directory, and the durable ones.

    `changes` are (time, name, node or None when removed, old name of a rename).
    """

    __slots__ = ("changes", "durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.changes: list[tuple[float, str, _Node | None, str | None]] = []

    def change(self, when_s: float, name: str, node: "_Node | None", old: str | None = None) -> None:
        _rename(self.names, name, node, old)
        self.changes.append((when_s, name, node, old))

    def make_durable(self, when_s: float) -> None:
        for when, name, node, old in self.changes:
            if when <= when_s:
                _rename(self.durable, name, node, old)
        self.changes = [one for one in self.changes if one[0] > when_s]

    def lose_power(self, random: Random, now_s: float) -> list[str]:
        """Drops unsynced changes at random. Returns descriptions of what was lost."""
        before = set(self.names)
        completed = [one for one in self.changes if one[0] <= now_s]
        for _, name, node, old in completed[: _survivors(random, len(completed))]:
            _rename(self.durable, name, node, old)
        self.changes.clear()
        self.names = dict(self.durable)
        lost = [f"the name {name}" for name in sorted(before - set(self.names))]
        for name in sorted(self.names):
            node = self.names[name]
            if isinstance(node, _Directory):
                lost += [f"{name}: {what}" for what in node.lose_power(random, now_s)]
            elif count := node.lose_power(random, now_s):
                lost.append(f"{name}: {count} bytes")
        return lost


_Node = _File | _Directory


def _rename(names: dict[str, _Node], name: str, node: _Node | None, old: str | None) -> None:
    if old is not None:
        names.pop(old, None)
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class SimulatedFile:
    """An open file of a `SimulatedDisk`."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, disk: "SimulatedDisk", path: str, file: _File) -> None:
        self.path = path
        self._disk = disk
        self._file = file

    def size(self) -> int:
        return len(self._file.content)

    def read(self, count: int, at: int) -> bytes:
        return bytes(memoryview(self._file.content)[at : at + count])

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        data = b"".join(buffers)
        self._disk.write(self._file, len(self._file.content), data, self.path)
        return len(data)

    def truncate(self, size: int) -> None:
        if size != len(self._file.content):
            self._file.write(self._disk.when_s(), size, None)

    def sync(self) -> None:
        self._disk.sync(self._file)

    def close(self) -> None:
        return None


class SimulatedLock:
    def __init__(self, disk: "SimulatedDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimulatedDisk:
    """A `Disk`. `now_s` is the loop's time, `now_ms` the host's wall clock.

    While `full` no file can grow. `sync_s` returns the duration of one offloaded sync; other syncs
    take no virtual time, because nothing else could run meanwhile.
    """

    def __init__(self, random: Random, now_s: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self.full = False
        self.sync_s: Callable[[], float]
        self.locks: set[str] = set()
        self._random = random
        self._now_s = now_s
        self._now_ms = now_ms
        self._root = _Directory()
        self._syncing: list[tuple[float, _File | _Directory, float]] = []  # (end time, node, start time)
        self.set_sync_s(0.0002, 0.004)
        self._ahead_s: float | None = None  # how long the current offloaded call has run

    # --- for the driver of a run

    def set_sync_s(self, least: float, most: float) -> None:
        self.sync_s = lambda: self._random.uniform(least, most)

    def release_locks(self) -> None:
        self.locks.clear()

    def lose_power(self) -> list[str]:
        """Keeps synced data and a random part of the rest. Returns descriptions of what was
        lost."""
        self.locks.clear()
        now_s = self._now_s()
        self._settle()
        self._syncing.clear()
        return self._root.lose_power(self._random, now_s)

    def wipe(self) -> None:
        self._root = _Directory()
        self.locks.clear()

    def mount(self, path: str) -> None:
        """Creates a folder that always exists, like the mount point of a volume."""
        self.make_directory(path)
        node = self._root
        for name in _parts(path):
            node.make_durable(self._now_s())
            node = cast(_Directory, node.names[name])

    def corrupt(self, path: str, at: int) -> None:
        """Flips one byte, in the cache and on the device."""
        file = self._file(path)
        file.make_durable(self._now_s())
        for content in (file.content, file.durable):
            content[at] ^= 0xFF

    def offload(self, call: Callable[[], T]) -> tuple[float, T | BaseException]:
        """Runs a call as a thread would: its syncs run one after another, and it ends with the last
        one. Returns its duration in s, and its result or exception.
        """
        self._ahead_s = CALL_S
        try:
            outcome: T | BaseException = call()
        except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
            outcome = error
        took_s, self._ahead_s = self._ahead_s, None
        return took_s, outcome

    # --- for open files

    def write(self, file: _File, at: int, data: bytes, path: str) -> None:
        if self.full and at + len(data) > len(file.content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if not data:
            return
        file.write(self.when_s(), at, data)
        file.modified_ms = self._now_ms()

    def when_s(self) -> float:
        """The current time of a call: an offloaded call advances while the loop's time stands
        still.
        """
        return self._now_s() + (self._ahead_s or 0.0)

    def sync(self, node: _File | _Directory) -> None:
        if self._ahead_s is None:
            node.make_durable(self._now_s())
            return
        begun_s = self.when_s()
        self._ahead_s += self.sync_s()
        self._syncing.append((self.when_s(), node, begun_s))
        if len(self._syncing) > 256:
            self._settle()

    def _settle(self) -> None:
        """Applies the syncs that have ended."""
        now_s = self._now_s()
        for _, node, begun_s in sorted((one for one in self._syncing if one[0] <= now_s), key=lambda one: one[0]):
            node.make_durable(begun_s)
        self._syncing = [one for one in self._syncing if one[0] > now_s]

    # --- paths

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(name)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name

    # --- the Disk protocol

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        if create and not read_only and self._find(path) is None:
            parent, name = self._parent(path)
            parent.change(self.when_s(), name, _File(self._now_ms()))
        return SimulatedFile(self, path, self._file(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def file_size(self, path: str) -> int:
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def list(self, directory: str) -> list[str]:
        return sorted(self._directory(directory).names)

    def make_directory(self, path: str) -> None:
        node = self._root
        for name in _parts(path):
            found = node.names.get(name)
            if found is None:
                found = _Directory()
                node.change(self.when_s(), name, found)
            elif not isinstance(found, _Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            node = found

    def read_file(self, path: str) -> bytes:
        return bytes(self._file(path).content)

    def replace_file(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append((data,))
        file.sync()
        self.rename(temporary, path)
        self.sync_directory(path.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if old_name not in source.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        assert source is target, "renames between directories are not simulated"
        if old_name != new_name:
            source.change(self.when_s(), new_name, source.names[old_name], old_name)

    def remove(self, path: str) -> None:
        if self._find(path) is not None:
            self._file(path)
            parent, name = self._parent(path)
            parent.change(self.when_s(), name, None)

    def remove_tree(self, path: str) -> None:
        if isinstance(self._find(path), _Directory):
            parent, name = self._parent(path)
            parent.change(self.when_s(), name, None)

    def sync_directory(self, path: str) -> None:
        self.sync(self._directory(path))

    def lock(self, path: str) -> SimulatedLock:
        if path in self.locks:
            raise LockHeld(path, 0)
        self.open(path, create=True)
        self.locks.add(path)
        return SimulatedLock(self, path)


def _parts(path: str) -> Iterable[str]:
    return [part for part in path.split("/") if part]


class SimulatedExecutor(Executor):
    """A broker's thread pool: a call takes the time of its disk operations."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def call(self, func: Callable[[], T]) -> tuple[float, T | BaseException]:
        return self._disk.offload(func)
