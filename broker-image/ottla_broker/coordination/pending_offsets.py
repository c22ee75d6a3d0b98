"""Offsets that open transactions have committed: they take effect once their transaction commits.
No I/O.

A later plain commit of the same partition replaces a pending one (KIP-98): the order of the
*records* decides, not that of the marker.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey

CommitOrRemoval = OffsetCommit | None


class PendingOffsets:
    """Offsets committed inside open transactions of one partition of `__consumer_offsets`, by
    producer id. False when there are none.
    """

    __slots__ = ("_by_producer", "_counts", "_ending", "_epochs", "_group_counts")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetCommitKey, CommitOrRemoval]] = {}
        self._epochs: dict[int, int] = {}
        self._ending: set[int] = set()
        self._counts: Counter[OffsetCommitKey] = Counter()
        self._group_counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """False as soon as the marker that ends the transaction is about to be appended."""
        return self._epochs.get(producer_id) == epoch and producer_id not in self._ending

    def has_offsets_of(self, producer_id: int) -> bool:
        return producer_id in self._by_producer

    def add(self, producer_id: int, epoch: int, commits: Mapping[OffsetCommitKey, CommitOrRemoval]) -> None:
        known = self._by_producer.setdefault(producer_id, {})
        self._epochs[producer_id] = epoch
        for key, commit in commits.items():
            if key not in known:
                self._counts[key] += 1
                self._group_counts[key.group] += 1
            known[key] = commit

    def discard(self, keys: Iterable[OffsetCommitKey]) -> None:
        """Drops the pending commits of these keys, because a later record replaces them."""
        if not self._by_producer:
            return
        for key in keys:
            if key in self._counts:
                for commits in self._by_producer.values():
                    if commits.pop(key, self) is not self:
                        self._forget(key)

    def mark_ending(self, producer_id: int) -> None:
        """Called before the marker is appended. No commit may be appended after the marker unless
        its transaction is verified again: it would begin a transaction that no marker ends. Commits
        that were appended before it may still be added.
        """
        self._ending.add(producer_id)

    def end(self, producer_id: int) -> dict[OffsetCommitKey, CommitOrRemoval]:
        """Removes and returns what the producer's transaction has committed."""
        ended = self._by_producer.pop(producer_id, {})
        self._epochs.pop(producer_id, None)
        self._ending.discard(producer_id)
        for key in ended:
            self._forget(key)
        return ended

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        return bool(self._counts) and OffsetCommitKey(group, topic, partition) in self._counts

    def has_group(self, group: str) -> bool:
        return group in self._group_counts

    def group_keys(self, group: str) -> Iterator[OffsetCommitKey]:
        return (key for key in self._counts if key.group == group)

    def _forget(self, key: OffsetCommitKey) -> None:
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]
        self._group_counts[key.group] -= 1
        if not self._group_counts[key.group]:
            del self._group_counts[key.group]
