"""Offsets that open transactions have committed."""

from ottla_broker.coordination.pending_offsets import PendingOffsets
from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey

A, B = OffsetCommitKey("g", "t", 0), OffsetCommitKey("g", "t", 1)
FIVE, SIX = OffsetCommit(5, -1, "", 0), OffsetCommit(6, -1, "", 0)


def test_offsets_are_pending_until_their_transaction_ends() -> None:
    pending = PendingOffsets()
    pending.add(7, 3, {A: FIVE})
    pending.add(7, 3, {A: SIX, B: FIVE})
    assert pending.is_pending("g", "t", 0) and pending.has_group("g")
    assert pending.has_open_transaction(7, 3) and not pending.has_open_transaction(7, 4)
    assert pending.end(7) == {A: SIX, B: FIVE}
    assert not pending and not pending.is_pending("g", "t", 0) and not pending.has_group("g")
    assert not pending.has_open_transaction(7, 3)
    assert pending.end(7) == {}


def test_transaction_is_not_open_any_more_when_its_marker_is_appended() -> None:
    pending = PendingOffsets()
    pending.add(7, 3, {A: FIVE})
    pending.mark_ending(7)
    pending.add(7, 3, {B: FIVE})  # appended before the marker, and replicated with it
    assert not pending.has_open_transaction(7, 3) and pending.is_pending("g", "t", 0)
    assert pending.end(7) == {A: FIVE, B: FIVE}
    pending.add(7, 3, {A: SIX})
    assert pending.has_open_transaction(7, 3), "the next transaction"


def test_later_plain_commit_wins() -> None:
    pending = PendingOffsets()
    pending.add(7, 0, {A: FIVE, B: FIVE})
    pending.add(8, 0, {A: SIX})
    pending.discard([A])
    assert not pending.is_pending("g", "t", 0) and pending.is_pending("g", "t", 1)
    assert (pending.end(7), pending.end(8)) == ({B: FIVE}, {})
