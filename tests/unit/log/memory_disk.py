"""A disk in memory that can lose power: what was not synced is lost, or kept in part, or zeros.

Content is safe once `sync` has returned. A file whose directory was not synced since it was created
may be lost. Renames and removals stay in order, as journaling file systems keep them.
"""

from collections.abc import Sequence
from random import Random

Bytes = bytes | bytearray | memoryview


class FileContent:
    """One file's content. `durable`: the content at the last sync; None before the first. `named`:
    the directory was synced since the file was created, so that its name survives a loss of power.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable: bytes | None = None
        self.named = False

    def after_crash(self, random: Random) -> bytes | None:
        """What is left of the content after a loss of power; None if the file is lost."""
        if not self.named and random.random() < 0.5:
            return None
        durable = self.durable or b""
        written = bytes(self.data)
        if not written.startswith(durable):
            # A truncation, which may or may not have reached the device.
            return random.choice([durable, written])
        kept = random.randint(len(durable), len(written))
        torn = written[:kept]
        return torn + bytes(len(written) - kept) if random.random() < 0.3 else torn


class MemoryFile:
    def __init__(self, path: str, content: FileContent) -> None:
        self.path = path
        self._content = content

    def size(self) -> int:
        return len(self._content.data)

    def read(self, count: int, at: int) -> bytes:
        return bytes(self._content.data[at : at + count])

    def append(self, buffers: Sequence[Bytes]) -> int:
        for buffer in buffers:
            self._content.data += buffer
        return sum(map(len, buffers))

    def truncate(self, size: int) -> None:
        content = self._content
        del content.data[size:]
        content.data.extend(bytes(size - len(content.data)))

    def sync(self) -> None:
        self._content.durable = bytes(self._content.data)

    def close(self) -> None:
        pass


class MemoryLock:
    def release(self) -> None:
        pass


class MemoryDisk:
    def __init__(self) -> None:
        self.files: dict[str, FileContent] = {}

    def lose_power(self, random: Random) -> None:
        for path, content in sorted(self.files.items()):
            left = content.after_crash(random)
            if left is None:
                del self.files[path]
            else:
                content.data[:] = left
                content.durable, content.named = left, True

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(2, "No such file or directory", path)
            self.files[path] = FileContent()
        return MemoryFile(path, self.files[path])

    def exists(self, path: str) -> bool:
        return path in self.files

    def file_size(self, path: str) -> int:
        return len(self.files[path].data)

    def modified_ms(self, path: str) -> int:
        return 0

    def list(self, directory: str) -> list[str]:
        start = directory.rstrip("/") + "/"
        return sorted({path[len(start) :].split("/")[0] for path in self.files if path.startswith(start)})

    def make_directory(self, path: str) -> None:
        pass

    def read_file(self, path: str) -> bytes:
        return bytes(self.files[path].data)

    def replace_file(self, path: str, data: bytes) -> None:
        content = self.files[path] = FileContent()
        content.data[:] = data
        content.durable, content.named = data, True

    def rename(self, old: str, new: str) -> None:
        for path in [p for p in self.files if p == old or p.startswith(old + "/")]:
            self.files[new + path[len(old) :]] = self.files.pop(path)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        for found in [p for p in self.files if p.startswith(path + "/")]:
            del self.files[found]

    def sync_directory(self, path: str) -> None:
        for found, content in self.files.items():
            if found.rpartition("/")[0] == path:
                content.named = True

    def lock(self, path: str) -> MemoryLock:
        return MemoryLock()
