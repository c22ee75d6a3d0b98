"""What a leader does with what a source that is appended answers, on real logs."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.mirroring.appended_offsets import AppendedOffsets
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition, process_partition_data
from ottla_broker.mirroring.source_positions import SOURCE_OFFSET_LIMIT
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_response import FetchResponsePartition
from tests.unit.log.log_fixtures import batch, spans
from tests.unit.replication.leading import Peers, led

SOURCE = UUID(int=99)
MARK = FIRST_RESERVED_PRODUCER_ID + 1


def copy_of(folder: Path, *, resyncs: bool = False, recorded: int = 0) -> MirroredPartition:
    partition = led(folder, Peers(), isr=(1,), records=5)
    return MirroredPartition(partition, "t", SOURCE, ((3, 0),), AppendedOffsets(MARK, recorded, resyncs))


def hears(
    copy: MirroredPartition, *records: bytes, end: int = 100, diverging: tuple[int, int] | None = None
) -> FetchOutcome:
    copy.requested_offset = copy.position
    got = FetchResponsePartition(
        SOURCE, 0, ErrorCode.none, end, -1, 0, memoryview(bytearray(b"".join(records))), diverging=diverging
    )
    outcome = process_partition_data(copy, got, 1.0)
    if outcome is not FetchOutcome.new_epochs:
        return outcome
    copy.source_epochs = copy.unrecorded_epochs
    return hears(copy, *records, end=end, diverging=diverging)


def test_records_get_offsets_behind_what_is_there(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    assert hears(copy, batch(3, base_offset=0, epoch=3), batch(2, base_offset=10, epoch=4)) is FetchOutcome.advanced
    log = copy.partition.log
    assert spans(log.read(5, 10_000, up_to=log.end)) == [(5, 7), (8, 9)], "a hole of the source's is none here"
    assert (copy.position, copy.last_record_epoch, copy.lag) == (12, 4, 88)


def test_a_source_that_starts_later_is_followed_there(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    assert copy.offset_policy.handle_out_of_range(copy, 37, 100) is FetchOutcome.advanced
    assert (copy.position, copy.last_record_epoch) == (37, -1)
    assert hears(copy, batch(10, base_offset=30, epoch=3)) is FetchOutcome.advanced, "its log starts inside of a batch"
    assert copy.position == 40


def test_a_batch_of_which_a_part_was_copied_is_not_taken(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    hears(copy, batch(3, base_offset=0, epoch=3))
    assert hears(copy, batch(3, base_offset=2, epoch=3)) is FetchOutcome.diverged
    assert "one batch from offset 2 to 4, and a part of it was mirrored, up to 3" in copy.reason


@pytest.mark.parametrize("resyncs", [False, True])
def test_where_the_source_has_parted_it_goes_on_only_if_wished(tmp_path: Path, resyncs: bool) -> None:
    copy = copy_of(tmp_path, resyncs=resyncs)
    hears(copy, batch(8, base_offset=0, epoch=3))
    ends = copy.partition.log.end
    if not resyncs:
        assert hears(copy, diverging=(2, 5)) is FetchOutcome.diverged
        assert "it has leader epoch 2 only up to offset 5, and the mirrored records end at 8" in copy.reason
        assert copy.offset_policy.handle_out_of_range(copy, 0, 5) is FetchOutcome.diverged
        return
    assert hears(copy, diverging=(2, 5)) is FetchOutcome.advanced
    assert (copy.position, copy.partition.log.end) == (5, ends), "what the source has lost stays here"
    assert hears(copy, batch(2, base_offset=5, epoch=4)) is FetchOutcome.advanced
    assert (copy.position, copy.partition.log.end) == (7, ends + 2)
    assert copy.offset_policy.handle_out_of_range(copy, 0, 6) is FetchOutcome.advanced
    assert copy.position == 6


def test_offsets_that_cannot_be_carried_stop_it(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    copy.offset_policy.handle_out_of_range(copy, SOURCE_OFFSET_LIMIT, SOURCE_OFFSET_LIMIT + 5)
    assert hears(copy, batch(1, base_offset=SOURCE_OFFSET_LIMIT, epoch=3)) is FetchOutcome.diverged
    assert f"source offset {SOURCE_OFFSET_LIMIT} is not supported" in copy.reason
    assert copy.partition.log.end == 5


def test_what_somebody_else_has_copied_meanwhile_is_not_copied_again(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    late = MirroredPartition(copy.partition, "t", SOURCE, ((3, 0),), AppendedOffsets(MARK, 0, False))
    hears(copy, batch(3, base_offset=0, epoch=3))
    assert hears(late, batch(3, base_offset=0, epoch=3)) is FetchOutcome.advanced
    assert (late.position, late.partition.log.end) == (3, 8)
