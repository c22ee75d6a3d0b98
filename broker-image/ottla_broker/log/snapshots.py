"""The producer snapshots of a partition on disk: one where each segment starts, and one at the recovery point or the log's end."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable

from ottla_broker.log import file_names
from ottla_broker.log.disk import Disk


class Snapshots:
    """Snapshots by offset: the state just before it."""

    __slots__ = ("_directory", "_disk", "_offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        return self._offsets

    def path(self, offset: int) -> str:
        return file_names.segment_file(self._directory, offset, file_names.SNAPSHOT)

    def newest_up_to(self, offset: int) -> int | None:
        at = bisect_right(self._offsets, offset)
        return self._offsets[at - 1] if at else None

    def read(self, offset: int) -> bytes:
        return self._disk.read_file(self.path(offset))

    def write(self, offset: int, data: bytes) -> None:
        """Not synced: a torn one is known by its CRC, and the one before it serves."""
        file = self._disk.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            file.append((data,))
        finally:
            file.close()
        self.note(offset)

    def note(self, offset: int) -> None:
        """The file for `offset` is there."""
        at = bisect_left(self._offsets, offset)
        if self._offsets[at : at + 1] != [offset]:
            insort(self._offsets, offset)

    def remove(self, offset: int) -> None:
        self._disk.remove(self.path(offset))
        self._offsets.remove(offset)

    def remove_above(self, offset: int) -> None:
        for gone in [o for o in self._offsets if o > offset]:
            self.remove(gone)

    def keep_only(self, bases: Collection[int]) -> None:
        """Removes those at no segment's base, but for the newest of all."""
        for gone in [o for o in self._offsets[:-1] if o not in bases]:
            self.remove(gone)
