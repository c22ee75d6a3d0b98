"""Up to where two logs are one: the log that was copied, and the copy that has gone on by itself since. Pure.

The original knows which of its leader epochs wrote from which offset on; the copy knows the same of what it took (`mirrored-partition` records). A
leader epoch has one writer, so where both have records of one epoch at the same offsets, those are the same records. Going down from the copy's
newest epoch to the first that both know, as followers do (KIP-101, KIP-595), finds the offset below which nothing differs.
"""

from uuid import UUID

import msgspec

from ottla_broker.mirroring.source_epochs import EpochEntries


class EpochHistory(msgspec.Struct, frozen=True, rename="camel"):
    """What the leader of a copy that has failed over says of it. `source_id`: the topic that was copied; `copied`: that topic's leader epoch → from
    which offset on; `end`: from there on the records are the copy's own; `epochs`: the copy's own leader epochs, in the same way, of the whole log."""

    source_id: UUID
    copied: EpochEntries
    end: int
    epochs: EpochEntries


def find_divergence_offset(original: EpochEntries, original_end: int, copied: EpochEntries, end: int) -> int:
    """`original`: its epochs as its log has them, up to `original_end`; `copied`: the same epochs as the copy took them, up to `end`."""
    limit = end
    while (epoch := _of_last_below(copied, limit)) is not None:
        older = [at for at, (known, _) in enumerate(original) if known <= epoch]
        if not older:
            # Everything that the original still holds is newer than what was copied: nothing is in both.
            return min(limit, original[0][1] if original else original_end)
        at = older[-1]
        ends = original[at + 1][1] if at + 1 < len(original) else original_end
        if original[at][0] == epoch:
            return min(limit, ends)
        follows = next(first for known, first in copied if known > original[at][0])
        limit = min(limit, ends, follows)
    return min(limit, original_end)


def mirrored_end_offset(epochs: EpochEntries, log_end: int, end: int, end_epoch: int) -> int:
    """Below which offset a copy that failed over at `end`, in its own leader epoch `end_epoch` (−1: not known), holds nothing but what was copied. `epochs`: its
    own. That is `end`, unless a leader that lacked some of it was elected uncleanly later, and wrote other records in its place."""
    newer = [first for epoch, first in epochs if epoch > end_epoch] if end_epoch >= 0 else []
    return min(end, log_end, *newer)


def epochs_below(epochs: EpochEntries, offset: int) -> EpochEntries:
    return tuple(entry for entry in epochs if entry[1] < offset)


def _of_last_below(epochs: EpochEntries, offset: int) -> int | None:
    return next((epoch for epoch, first in reversed(epochs) if first < offset), None)
