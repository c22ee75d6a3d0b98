"""`.txnindex`: the aborted transactions whose end marker lies in a segment, so that read_committed readers can leave their records out.

Entries of 34 bytes: version i16 (0) · producer id i64 · first offset i64 · last offset (of the marker) i64 · last stable offset i64 when the
marker was written. A segment without aborted transactions has no such file.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla_broker.log.open_files import OpenFiles

_ENTRY: Final = Struct(">hqqqq")
ENTRY: Final = _ENTRY.size
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction of one producer: from its first record to its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    __slots__ = ("_entries", "_files", "_saved", "path")

    def __init__(self, files: OpenFiles, path: str) -> None:
        self._files = files
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._saved = 0

    def entries(self) -> list[AbortedTransaction]:
        """Oldest marker first. ValueError when the file holds anything but entries."""
        if self._entries is None:
            self._entries = []
            if self._files.disk.exists(self.path):
                file = self._files.get(self.path)
                data = file.read(file.size(), 0)
                whole = len(data) // ENTRY * ENTRY
                for version, *fields in _ENTRY.iter_unpack(data[:whole]):
                    if version != _VERSION:
                        raise ValueError(f"{self.path} holds an entry of version {version}; only {_VERSION} is known")
                    entry = AbortedTransaction(*fields)
                    if entry.first_offset >= entry.last_offset:
                        break  # zeros that a loss of power left: nothing behind them was on the device
                    self._entries.append(entry)
            self._saved = len(self._entries)
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        self.entries().append(entry)

    def truncate_to(self, offset: int) -> None:
        """Forgets transactions whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        self._entries = kept
        if len(kept) < self._saved:
            self._files.get(self.path).truncate(len(kept) * ENTRY)
            self._saved = len(kept)

    def clear(self) -> None:
        """Forgets everything, also what could not be read."""
        self._entries = []
        self._saved = 0
        if self._files.disk.exists(self.path):
            self._files.get(self.path).truncate(0)

    def unload(self) -> None:
        self._entries = None

    def save(self) -> None:
        if self._entries is None or len(self._entries) == self._saved:
            return
        file = self._files.create(self.path)
        if file.size() != self._saved * ENTRY:
            file.truncate(self._saved * ENTRY)
        new = self._entries[self._saved :]
        file.append([b"".join(_ENTRY.pack(_VERSION, *entry) for entry in new)])
        self._saved += len(new)
