"""The leader of a mirrored partition with identical offsets applies fetch responses to a real
log.
"""

from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.mirroring.identical_offsets import IDENTICAL_OFFSETS
from ottla_broker.mirroring.mirrored_partition import (
    BytesPerOffset,
    FetchOutcome,
    MirroredPartition,
    process_partition_data,
)
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_response import FetchResponsePartition
from tests.unit.log.log_fixtures import batch
from tests.unit.replication.leader_partition import FakeClusterView, create_leader, record_fetch, update_metadata

SOURCE = UUID(int=99)


@pytest.fixture
def mirrored(tmp_path: Path) -> MirroredPartition:
    return MirroredPartition(
        create_leader(tmp_path, FakeClusterView(), isr=(1,)), "t", SOURCE, ((3, 0),), IDENTICAL_OFFSETS
    )


def response(
    records: bytes = b"",
    *,
    end: int = 100,
    start: int = 0,
    error: ErrorCode = ErrorCode.none,
    diverging: tuple[int, int] | None = None,
) -> FetchResponsePartition:
    return FetchResponsePartition(SOURCE, 0, error, end, -1, start, memoryview(bytearray(records)), diverging=diverging)


def apply_response(mirrored: MirroredPartition, *args: bytes, **how: object) -> FetchOutcome:
    """Applies a response to a request at the log end."""
    mirrored.requested_offset = mirrored.partition.log.end
    return process_partition_data(mirrored, response(*args, **how), 1.0)  # type: ignore[arg-type]


def test_batches_keep_all_fields_except_the_leader_epoch(mirrored: MirroredPartition) -> None:
    sent = batch(3, base_offset=0, epoch=3, producer=(7, 1, 0)) + batch(2, base_offset=10, epoch=3)
    assert apply_response(mirrored, sent + batch(1, base_offset=12, epoch=3)[:40]) is FetchOutcome.advanced
    log = mirrored.partition.log
    assert (log.start, log.end, log.high_watermark) == (0, 12, 12), (
        "offset gaps are appended, and a partial batch is ignored"
    )
    appended = bytearray(log.read(0, 10_000, up_to=12))
    assert [header.leader_epoch for _, header in iter_batches(appended)] == [1, 1]
    assert [producer.producer_id for producer in log.producers] == [7]
    for at, _ in list(iter_batches(appended)):
        appended[at + 12 : at + 16] = (3).to_bytes(4)
    assert appended == sent
    assert mirrored.lag == 88 and mirrored.last_record_epoch == 3


def test_new_epoch_is_recorded_before_its_records_are_appended(mirrored: MirroredPartition) -> None:
    sent = batch(3, base_offset=0, epoch=3) + batch(2, base_offset=3, epoch=5)
    assert apply_response(mirrored, sent) is FetchOutcome.new_epochs
    assert mirrored.partition.log.end == 0
    assert mirrored.unrecorded_epochs == ((3, 0), (5, 3))
    mirrored.source_epochs = mirrored.unrecorded_epochs
    assert apply_response(mirrored, sent) is FetchOutcome.advanced
    assert mirrored.last_record_epoch == 5


def test_response_for_an_outdated_offset_is_ignored(mirrored: MirroredPartition) -> None:
    mirrored.requested_offset = 3
    assert process_partition_data(mirrored, response(batch(1, base_offset=3, epoch=3)), 1.0) is FetchOutcome.advanced
    assert mirrored.partition.log.end == 0


@pytest.mark.parametrize(
    ("fields", "outcome", "reason"),
    [
        ({"error": ErrorCode.unknown_topic_id}, FetchOutcome.not_leader, ""),
        ({"error": ErrorCode.not_leader_or_follower}, FetchOutcome.not_leader, ""),
        ({"error": ErrorCode.offset_out_of_range}, FetchOutcome.out_of_range, ""),
        ({"error": ErrorCode.topic_authorization_failed}, FetchOutcome.retriable_error, ""),
        (
            {"diverging": (2, 1)},
            FetchOutcome.diverged,
            "it has leader epoch 2 only up to offset 1, and the mirrored records end at 3",
        ),
        ({"records": batch(3, base_offset=3, epoch=2)}, FetchOutcome.diverged, "offset 3 has leader epoch 2"),
        ({"records": batch(3, base_offset=2, epoch=3)}, FetchOutcome.diverged, "one batch from offset 2 to 4"),
        ({"end": 3}, FetchOutcome.unchanged, ""),
    ],
)
def test_response_decides_the_outcome(
    mirrored: MirroredPartition, fields: dict[str, object], outcome: FetchOutcome, reason: str
) -> None:
    apply_response(mirrored, batch(3, base_offset=0, epoch=3))
    records = fields.pop("records", b"")
    assert isinstance(records, bytes)
    assert apply_response(mirrored, records, **fields) is outcome
    assert reason in mirrored.reason
    assert mirrored.partition.log.end == 3


def test_log_start_inside_a_batch_keeps_the_whole_batch(mirrored: MirroredPartition) -> None:
    assert IDENTICAL_OFFSETS.handle_out_of_range(mirrored, 37, 100) is FetchOutcome.advanced
    assert mirrored.partition.log.end == 37
    assert apply_response(mirrored, batch(10, base_offset=30, epoch=3), start=37) is FetchOutcome.new_epochs
    mirrored.source_epochs = mirrored.unrecorded_epochs
    assert apply_response(mirrored, batch(10, base_offset=30, epoch=3), start=37) is FetchOutcome.advanced
    log = mirrored.partition.log
    assert (log.start, log.end) == (37, 40)


def test_source_that_ends_before_the_mirrored_records_has_diverged(mirrored: MirroredPartition) -> None:
    apply_response(mirrored, batch(10, base_offset=0, epoch=3))
    assert IDENTICAL_OFFSETS.handle_out_of_range(mirrored, 0, 7) is FetchOutcome.diverged
    assert "its log ends at offset 7, and the mirrored records end at 10" in mirrored.reason
    assert mirrored.partition.log.end == 10
    assert IDENTICAL_OFFSETS.handle_out_of_range(mirrored, 25, 30) is FetchOutcome.advanced
    assert (mirrored.partition.log.start, mirrored.partition.log.end) == (25, 25)


def test_log_start_advances_when_the_high_watermark_has(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1, 2))
    mirrored = MirroredPartition(partition, "t", SOURCE, ((3, 0),), IDENTICAL_OFFSETS)
    apply_response(mirrored, batch(10, base_offset=0, epoch=3), start=8)
    assert partition.log.start == 0
    record_fetch(partition, 2, 10)
    IDENTICAL_OFFSETS.advance_log_start(mirrored)
    assert partition.log.start == 8


def test_leadership_ends_with_the_leader_epoch(mirrored: MirroredPartition) -> None:
    assert mirrored.is_leader
    update_metadata(mirrored.partition, leader_epoch=2)
    assert not mirrored.is_leader


def test_corrupt_batch_is_not_appended(mirrored: MirroredPartition) -> None:
    sent = bytearray(batch(3, base_offset=0, epoch=3))
    sent[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        apply_response(mirrored, bytes(sent))
    assert caught.value.code is ErrorCode.corrupt_message
    assert mirrored.partition.log.end == 0


def test_lag_bytes_is_estimated_from_recent_batches(mirrored: MirroredPartition) -> None:
    assert mirrored.lag_bytes == 0, "no record is missing"
    mirrored.source_high_watermark = 10
    assert mirrored.lag_bytes == -1, "no batch has been fetched and the log is empty"
    small, large = batch(5, base_offset=0, epoch=3), batch(5, base_offset=5, epoch=3, size=1000)
    apply_response(mirrored, small)
    assert mirrored.lag_bytes == round(95 * len(small) / 5)
    apply_response(mirrored, large)
    assert mirrored.lag_bytes == round(90 * (len(small) + len(large)) / 10)
    again = MirroredPartition(mirrored.partition, "t", SOURCE, mirrored.source_epochs, IDENTICAL_OFFSETS)
    again.source_high_watermark = 20
    assert again.lag_bytes == round(10 * mirrored.partition.log.size / 10), "after a restart: from the local log"


def test_recent_bytes_dominate_the_average_size() -> None:
    average = BytesPerOffset()
    for _ in range(1000):
        average.add(1 << 20, 1000)
    for _ in range(1000):
        average.add(1 << 20, 10)
    assert average.size / average.offsets > 0.9 * (1 << 20) / 10


def test_source_silence_counts_from_the_last_response(mirrored: MirroredPartition) -> None:
    assert mirrored.source_silence_s(5.0) == -1
    mirrored.last_response.received_s = 2.0
    assert mirrored.source_silence_s(5.0) == 3.0
