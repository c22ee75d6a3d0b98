"""Leader epochs of a source partition, for the records that the mirrored partition has. Pure.

The epochs let a source detect that its log has diverged from the one here (KIP-595), and let a
failback compute the offset up to which two logs are identical. An entry is (epoch, first offset of
the epoch); both values rise from entry to entry. Records of old Kafka versions carry no epoch and
belong to epoch −1.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from ottla_broker.log.validation import HeaderFields

NO_EPOCH: Final = -1
EpochEntries = tuple[tuple[int, int], ...]


class EpochRegression(Exception):
    """A record has an older epoch than the record before it, so the source's log is not the one
    that was mirrored.
    """


class EpochHistory(msgspec.Struct, frozen=True, rename="camel"):
    """Leader epochs of a mirrored partition that has failed over, as its leader reports them to the
    old source.

    `source_id` is the topic that was mirrored and `mirrored_epochs` are that topic's leader epochs.
    Records from `failover_offset` on are the partition's own. `epochs` are the partition's own
    leader epochs over the whole log.
    """

    source_id: UUID
    mirrored_epochs: EpochEntries = msgspec.field(name="copied")
    failover_offset: int = msgspec.field(name="end")
    epochs: EpochEntries


def last_record_epoch(epochs: EpochEntries, start: int, end: int) -> int:
    """Epoch of the last record in a log from `start` to `end`; NO_EPOCH if the log is empty or the
    epoch is unknown.
    """
    if end <= start:
        return NO_EPOCH
    epoch = _epoch_before(epochs, end)
    return NO_EPOCH if epoch is None else epoch


def epochs_after_append(
    epochs: EpochEntries, start: int, end: int, batches: Sequence[tuple[int, HeaderFields]]
) -> EpochEntries | None:
    """Entries to record before `batches` are appended to a log from `start` to `end`; None if
    nothing changes.

    Entries at or above `end` describe records that this replica does not have. Entries of records
    below `start` are dropped. Raises EpochRegression.
    """
    kept = [entry for entry in epochs if entry[1] < end]
    last = kept[-1][0] if kept and end > start else NO_EPOCH
    found: list[tuple[int, int]] = []
    for _, fields in batches:
        base, epoch = fields[0], fields[2]
        if epoch < last:
            raise EpochRegression(f"offset {base} has leader epoch {epoch}, and the record before it has epoch {last}")
        if epoch > last:
            found.append((epoch, base))
            last = epoch
    reached = batches[-1][1][0] + batches[-1][1][6] + 1 if batches else end
    outdated = [entry for entry in epochs if end <= entry[1] < reached and entry not in found]
    if not outdated and set(found) <= set(epochs):
        return None  # an earlier leader recorded them, and this replica does not have all of that leader's records
    if end > start:
        below = [at for at, entry in enumerate(kept) if entry[1] <= start]
        kept = kept[below[-1] :] if below else kept
    else:
        kept = []
    return (*kept, *found)


def find_divergence_offset(original: EpochEntries, original_end: int, mirrored: EpochEntries, end: int) -> int:
    """Offset below which two logs are identical.

    `original` are the epochs of the original log, which ends at `original_end`. `mirrored` are the
    same epochs as the mirrored log has them, up to offset `end`. One leader writes in an epoch, so
    records of the same epoch and offset are the same record. The search goes from the newest
    mirrored epoch down to the first that both logs have, as followers do (KIP-101, KIP-595).
    """
    limit = end
    while (epoch := _epoch_before(mirrored, limit)) is not None:
        older = [at for at, (known, _) in enumerate(original) if known <= epoch]
        if not older:
            # All records that the original still has are newer than the mirrored ones: no record is
            # in both.
            return min(limit, original[0][1] if original else original_end)
        at = older[-1]
        original_epoch_end = original[at + 1][1] if at + 1 < len(original) else original_end
        if original[at][0] == epoch:
            return min(limit, original_epoch_end)
        newer_start = next(first for known, first in mirrored if known > original[at][0])
        limit = min(limit, original_epoch_end, newer_start)
    return min(limit, original_end)


def mirrored_end_offset(epochs: EpochEntries, log_end: int, failover_offset: int, failover_epoch: int) -> int:
    """Offset below which all records of a failed-over partition are mirrored ones.

    `epochs` are the partition's own; `failover_epoch` is its leader epoch at the failover, −1 if
    unknown. The result is `failover_offset`, unless a leader without some of these records was
    elected uncleanly later and wrote others.
    """
    newer_starts = [first for epoch, first in epochs if epoch > failover_epoch] if failover_epoch >= 0 else []
    return min(failover_offset, log_end, *newer_starts)


def epochs_below(epochs: EpochEntries, offset: int) -> EpochEntries:
    return tuple(entry for entry in epochs if entry[1] < offset)


def _epoch_before(epochs: EpochEntries, offset: int) -> int | None:
    """Epoch of the record before `offset`."""
    return next((epoch for epoch, first in reversed(epochs) if first < offset), None)
