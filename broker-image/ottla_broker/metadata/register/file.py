"""The register as a file, for brokers on one machine. Compare-and-swap is a lock held over read, compare and atomic replace.

The lock is on a file beside it, because the register itself is replaced and a lock on a replaced file excludes nobody.
"""

import asyncio
import fcntl
import hashlib
import os
from pathlib import Path

import msgspec

from ottla_broker.log.disk import Disk, OsDisk
from ottla_broker.metadata.register import Conflict, RegisterError, RegisterValue, VersionedValue
from ottla_broker.runtime import Runtime

LOOK_EVERY_S = 0.05  # one stat of a file: a few microseconds


class FileRegister:
    """`path`: a JSON file; its folder must exist or be creatable. Locks are the operating system's, so a dead holder frees it."""

    def __init__(self, path: str, runtime: Runtime, disk: Disk | None = None) -> None:
        self._path = path
        self._runtime = runtime
        self._disk: Disk = disk or OsDisk()

    async def read(self) -> VersionedValue:
        return await self._runtime.run_in_thread(self._read)

    async def swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        return await self._runtime.run_in_thread(self._swap, seen, new)

    async def watch(self, seen: VersionedValue, timeout_s: float) -> VersionedValue:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            looked = self._look()
            found = await self.read()
            if found.version != seen.version or loop.time() >= deadline:
                return found
            while looked == self._look() and loop.time() < deadline:  # noqa: ASYNC110 - files have no events everywhere
                await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        return None

    def _look(self) -> tuple[int, int, int]:
        """What changes whenever the file is replaced."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - every few milliseconds
        except FileNotFoundError:
            return 0, 0, 0
        except OSError as error:
            raise self._unreachable(error) from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> VersionedValue:
        try:
            data = self._disk.read_file(self._path)
            return VersionedValue(msgspec.json.decode(data, type=RegisterValue), _version(data))
        except FileNotFoundError:
            return VersionedValue(None, "")
        except OSError as error:
            raise self._unreachable(error) from error
        except msgspec.MsgspecError as error:
            raise RegisterError(f"register=file:{self._path}: that is no register: {error}") from error

    def _swap(self, seen: VersionedValue, new: RegisterValue) -> VersionedValue:
        try:
            if not seen.version:  # whoever has seen a register makes no new one where its folder has gone
                self._disk.make_directory(str(Path(self._path).parent))
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._read().version != seen.version:
                raise Conflict(f"{self._path} was changed by another broker")
            data = msgspec.json.format(msgspec.json.encode(new), indent=2) + b"\n"
            self._disk.replace_file(self._path, data)
            return VersionedValue(new, _version(data))
        except OSError as error:
            raise self._unreachable(error) from error
        finally:
            os.close(lock)

    def _unreachable(self, error: OSError) -> RegisterError:
        return RegisterError(f"register=file:{self._path}: {error.strerror or error}")


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
