"""The leader epochs of a source's partition, as far as our copy holds records of them: what is told to the source so that it notices where its
log and ours part, and what has to be written down before more is appended. Pure.

Entries are (epoch, offset from which on records are of it), both rising. A record without an epoch (an old source's) is of epoch −1.
"""

from collections.abc import Sequence
from typing import Final

from ottla_broker.log.validation import HeaderFields

NO_EPOCH: Final = -1
EpochEntries = tuple[tuple[int, int], ...]


class EpochRegression(Exception):
    """A record of an older epoch than the one before it: the source's log is not the one that was copied."""


def last_record_epoch(epochs: EpochEntries, start: int, end: int) -> int:
    """Of the last record of a log from `start` to `end`; −1 when it is empty, or nobody knows."""
    if end <= start:
        return NO_EPOCH
    return next((epoch for epoch, first in reversed(epochs) if first < end), NO_EPOCH)


def epochs_after_append(
    epochs: EpochEntries, start: int, end: int, batches: Sequence[tuple[int, HeaderFields]]
) -> EpochEntries | None:
    """What the epochs are once `batches` are appended to a log from `start` to `end`; None when they say nothing new. WentBack.

    Entries at or above `end` were of records that this replica does not hold; those of records below `start` are dropped with them."""
    kept = [entry for entry in epochs if entry[1] < end]
    last = kept[-1][0] if kept and end > start else NO_EPOCH
    found: list[tuple[int, int]] = []
    for _, fields in batches:
        base, epoch = fields[0], fields[2]
        if epoch < last:
            raise EpochRegression(f"a record of its leader epoch {epoch} at offset {base}, behind one of epoch {last}")
        if epoch > last:
            found.append((epoch, base))
            last = epoch
    reached = batches[-1][1][0] + batches[-1][1][6] + 1 if batches else end
    wrong = [entry for entry in epochs if end <= entry[1] < reached and entry not in found]
    if not wrong and set(found) <= set(epochs):
        return None  # a leader before us may have written it down, whose records we do not all hold
    if end > start:
        below = [at for at, entry in enumerate(kept) if entry[1] <= start]
        kept = kept[below[-1] :] if below else kept
    else:
        kept = []
    return (*kept, *found)
