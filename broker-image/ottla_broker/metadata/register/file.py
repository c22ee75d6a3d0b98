"""The register as a file, for brokers on one machine. Compare-and-swap is a lock held over read, compare and atomic replace.

The lock is on a file beside it, because the register itself is replaced and a lock on a replaced file excludes nobody.
"""

import fcntl
import hashlib
import os
from pathlib import Path

import msgspec

from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.metadata.register import Conflict, RegisterValue, Seen
from ottla_broker.runtime import Runtime


class FileRegister:
    """`path`: a JSON file; its folder must exist or be creatable. Locks are the operating system's, so a dead holder frees it."""

    def __init__(self, path: str, runtime: Runtime, disk: Disk | None = None) -> None:
        self._path = path
        self._runtime = runtime
        self._disk: Disk = disk or OsDisk()

    async def read(self) -> Seen:
        return await self._runtime.offload(self._read)

    async def swap(self, seen: Seen, new: RegisterValue) -> Seen:
        return await self._runtime.offload(self._swap, seen, new)

    async def close(self) -> None:
        return None

    def _read(self) -> Seen:
        try:
            data = self._disk.read_file(self._path)
        except FileNotFoundError:
            return Seen(None, "")
        return Seen(msgspec.json.decode(data, type=RegisterValue), _version(data))

    def _swap(self, seen: Seen, new: RegisterValue) -> Seen:
        self._disk.make_directory(str(Path(self._path).parent))
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._read().version != seen.version:
                raise Conflict(f"{self._path} was changed by another broker")
            data = msgspec.json.format(msgspec.json.encode(new), indent=2) + b"\n"
            self._disk.replace_file(self._path, data)
            return Seen(new, _version(data))
        finally:
            os.close(lock)


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
