"""Leader epochs and their start offsets (KIP-101, KIP-279), with which replicas and clients find
the offset where two logs diverge.

The file `leader-epoch-checkpoint` holds `0`, the number of entries, and one `<epoch> <start
offset>` a line. It is written before the recovery point passes an entry, not when the entry is
made. Above the recovery point a restart reads the epochs from the batches.
"""

from bisect import bisect_right
from typing import Final

from ottla_broker.log.disk import Disk

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
_NO_EPOCHS: Final = "0\n0\n"


class LeaderEpochs:
    """Epochs and their start offsets, both rising strictly. `is_dirty`: the file is older than
    this."""

    __slots__ = ("_epochs", "_starts", "is_dirty", "path")

    def __init__(self, path: str, entries: list[tuple[int, int]] | None = None) -> None:
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries or ():
            self.assign(epoch, start)
        self.is_dirty = False

    @classmethod
    def load(cls, disk: Disk, path: str) -> "LeaderEpochs":
        """Reads the file. Raises ValueError when it is damaged.

        There are no entries if the file is empty, as Kafka's is at first, or if it has only the
        beginning of a header for no entries, which a loss of power can leave.
        """
        text = disk.read_file(path).decode() if disk.exists(path) else ""
        return cls(path, None if text == _NO_EPOCHS[: len(text)] else _parse(path, text))

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def latest_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`; −1 if it lies before every known epoch."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED_EPOCH

    def assign(self, epoch: int, start: int) -> None:
        """Begins an epoch at offset `start`. Entries that contradict it (a newer epoch, a later
        start, or another epoch with this start) are dropped. An epoch that began earlier keeps its
        start. Raises ValueError for a negative epoch or offset."""
        if epoch < 0 or start < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start}: neither may be negative")
        while self._epochs and (
            self._epochs[-1] > epoch or self._starts[-1] > start or self._is_replaced_by(epoch, start)
        ):
            self._epochs.pop()
            self._starts.pop()
            self.is_dirty = True
        if self._epochs and self._epochs[-1] == epoch:
            # It began earlier.
            return
        self._epochs.append(epoch)
        self._starts.append(start)
        self.is_dirty = True

    def _is_replaced_by(self, epoch: int, start: int) -> bool:
        """True if another epoch begins where the latest did."""
        return self._starts[-1] == start and self._epochs[-1] != epoch

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset): the largest known epoch ≤ `epoch`, and where the next one starts.

        The latest epoch ends at `log_end`. For an epoch older than all known ones, returns that
        epoch and the start of the first known one. Returns (−1, −1) for an epoch newer than all,
        for a negative one, and if no epoch is known.
        """
        if not self._epochs or epoch < 0 or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end
        at = bisect_right(self._epochs, epoch)
        return (self._epochs[at - 1] if at else epoch), self._starts[at]

    def truncate_from_end(self, end: int) -> None:
        """Drops epochs that start at or after `end`: none of their records is left."""
        while self._starts and self._starts[-1] >= end:
            self._starts.pop()
            self._epochs.pop()
            self.is_dirty = True

    def truncate_from_start(self, start: int) -> None:
        """Drops epochs that ended by the log's new start; the one that wrote `start` begins there
        now."""
        at = bisect_right(self._starts, start)
        if at and (at > 1 or self._starts[0] != start):
            del self._epochs[: at - 1], self._starts[: at - 1]
            self._starts[0] = start
            self.is_dirty = True

    def clear(self) -> None:
        self.is_dirty = self.is_dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()

    def encode(self) -> bytes:
        lines = ["0", str(len(self._epochs)), *(f"{epoch} {start}" for epoch, start in self.entries())]
        return ("\n".join(lines) + "\n").encode()


def _parse(path: str, text: str) -> list[tuple[int, int]]:
    lines = text.split("\n")
    try:
        if lines[0].strip() != "0":
            raise ValueError(f"{path}:1: version {lines[0]!r}; only 0 is known")
        count = int(lines[1])
        entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines[2 : 2 + count])]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path}: not a leader epoch checkpoint: {error}") from error
    if len(entries) != count:
        raise ValueError(f"{path}: {count} entries announced, {len(entries)} found")
    return entries
