"""The leader of a mirrored partition with appended offsets applies fetch responses to a real
log.
"""

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
from tests.unit.replication.leader_partition import FakeClusterView, create_leader

SOURCE = UUID(int=99)
PRODUCER_ID = FIRST_RESERVED_PRODUCER_ID + 1


def mirrored_partition(folder: Path, *, resyncs: bool = False) -> MirroredPartition:
    partition = create_leader(folder, FakeClusterView(), isr=(1,), records=5)
    return MirroredPartition(partition, "t", SOURCE, ((3, 0),), AppendedOffsets(PRODUCER_ID, 0, resyncs))


def apply_response(
    mirrored: MirroredPartition, *records: bytes, end: int = 100, diverging: tuple[int, int] | None = None
) -> FetchOutcome:
    """Applies a response to a request at the position. New epochs are recorded first."""
    mirrored.requested_offset = mirrored.position
    data = FetchResponsePartition(
        SOURCE, 0, ErrorCode.none, end, -1, 0, memoryview(bytearray(b"".join(records))), diverging=diverging
    )
    outcome = process_partition_data(mirrored, data, 1.0)
    if outcome is not FetchOutcome.new_epochs:
        return outcome
    mirrored.source_epochs = mirrored.unrecorded_epochs
    return apply_response(mirrored, *records, end=end, diverging=diverging)


def test_records_get_offsets_after_the_existing_records(tmp_path: Path) -> None:
    mirrored = mirrored_partition(tmp_path)
    assert (
        apply_response(mirrored, batch(3, base_offset=0, epoch=3), batch(2, base_offset=10, epoch=4))
        is FetchOutcome.advanced
    )
    log = mirrored.partition.log
    assert spans(log.read(5, 10_000, up_to=log.end)) == [(5, 7), (8, 9)], "offset gaps of the source are not kept"
    assert (mirrored.position, mirrored.last_record_epoch, mirrored.lag) == (12, 4, 88)


def test_mirroring_continues_at_the_source_log_start(tmp_path: Path) -> None:
    mirrored = mirrored_partition(tmp_path)
    assert mirrored.offset_policy.handle_out_of_range(mirrored, 37, 100) is FetchOutcome.advanced
    assert (mirrored.position, mirrored.last_record_epoch) == (37, -1)
    assert apply_response(mirrored, batch(10, base_offset=30, epoch=3)) is FetchOutcome.advanced, (
        "the source's log starts inside a batch"
    )
    assert mirrored.position == 40


def test_partly_mirrored_batch_is_a_divergence(tmp_path: Path) -> None:
    mirrored = mirrored_partition(tmp_path)
    apply_response(mirrored, batch(3, base_offset=0, epoch=3))
    assert apply_response(mirrored, batch(3, base_offset=2, epoch=3)) is FetchOutcome.diverged
    assert "one batch from offset 2 to 4, and a part of it was mirrored, up to 3" in mirrored.reason


@pytest.mark.parametrize("resyncs", [False, True])
def test_diverged_source_is_followed_only_with_resync(tmp_path: Path, resyncs: bool) -> None:
    mirrored = mirrored_partition(tmp_path, resyncs=resyncs)
    apply_response(mirrored, batch(8, base_offset=0, epoch=3))
    log_end = mirrored.partition.log.end
    if not resyncs:
        assert apply_response(mirrored, diverging=(2, 5)) is FetchOutcome.diverged
        assert "it has leader epoch 2 only up to offset 5, and the mirrored records end at 8" in mirrored.reason
        assert mirrored.offset_policy.handle_out_of_range(mirrored, 0, 5) is FetchOutcome.diverged
        return
    assert apply_response(mirrored, diverging=(2, 5)) is FetchOutcome.advanced
    assert (mirrored.position, mirrored.partition.log.end) == (5, log_end), "records that the source has lost stay here"
    assert apply_response(mirrored, batch(2, base_offset=5, epoch=4)) is FetchOutcome.advanced
    assert (mirrored.position, mirrored.partition.log.end) == (7, log_end + 2)
    assert mirrored.offset_policy.handle_out_of_range(mirrored, 0, 6) is FetchOutcome.advanced
    assert mirrored.position == 6


def test_unsupported_source_offsets_stop_mirroring(tmp_path: Path) -> None:
    mirrored = mirrored_partition(tmp_path)
    mirrored.offset_policy.handle_out_of_range(mirrored, SOURCE_OFFSET_LIMIT, SOURCE_OFFSET_LIMIT + 5)
    assert apply_response(mirrored, batch(1, base_offset=SOURCE_OFFSET_LIMIT, epoch=3)) is FetchOutcome.diverged
    assert f"source offset {SOURCE_OFFSET_LIMIT} is not supported" in mirrored.reason
    assert mirrored.partition.log.end == 5


def test_records_of_another_fetcher_are_not_appended_again(tmp_path: Path) -> None:
    mirrored = mirrored_partition(tmp_path)
    late = MirroredPartition(mirrored.partition, "t", SOURCE, ((3, 0),), AppendedOffsets(PRODUCER_ID, 0, False))
    apply_response(mirrored, batch(3, base_offset=0, epoch=3))
    assert apply_response(late, batch(3, base_offset=0, epoch=3)) is FetchOutcome.advanced
    assert (late.position, late.partition.log.end) == (3, 8)
