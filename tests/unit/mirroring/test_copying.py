"""What a leader does with what its source answers, on real logs."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.mirroring.mirrored_partition import (
    BytesPerOffset,
    FetchOutcome,
    MirroredPartition,
    find_range,
    follow_start,
    process_partition_data,
)
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.replica_fetch import FetchResponsePartition
from tests.unit.log.making import batch
from tests.unit.replication.leading import Peers, committed, fetch, led

SOURCE = UUID(int=99)


@pytest.fixture
def copy(tmp_path: Path) -> MirroredPartition:
    return MirroredPartition(led(tmp_path, Peers(), isr=(1,)), "t", SOURCE, ((3, 0),))


def got(
    records: bytes = b"",
    *,
    end: int = 100,
    start: int = 0,
    error: ErrorCode = ErrorCode.none,
    diverging: tuple[int, int] | None = None,
) -> FetchResponsePartition:
    return FetchResponsePartition(SOURCE, 0, error, end, start, memoryview(bytearray(records)), diverging)


def hears(copy: MirroredPartition, *args: bytes, **how: object) -> FetchOutcome:
    """To a request for what follows the log's end."""
    copy.requested_offset = copy.partition.log.end
    return process_partition_data(copy, got(*args, **how), 1.0)  # type: ignore[arg-type]


def test_batches_keep_everything_but_the_leader_epoch(copy: MirroredPartition) -> None:
    sent = batch(3, base_offset=0, epoch=3, producer=(7, 1, 0)) + batch(2, base_offset=10, epoch=3)
    assert hears(copy, sent + batch(1, base_offset=12, epoch=3)[:40]) is FetchOutcome.advanced
    log = copy.partition.log
    assert (log.start, log.end, log.high_watermark) == (0, 12, 12), "the hole stays one, what was cut off is left"
    kept = bytearray(log.read(0, 10_000, up_to=12))
    assert [header.leader_epoch for _, header in iter_batches(kept)] == [1, 1]
    assert [producer.producer_id for producer in log.producers] == [7]
    for at, _ in list(iter_batches(kept)):
        kept[at + 12 : at + 16] = (3).to_bytes(4)
    assert kept == sent
    assert copy.lag == 88 and copy.last_record_epoch == 3


def test_a_new_epoch_is_written_down_before_its_records(copy: MirroredPartition) -> None:
    sent = batch(3, base_offset=0, epoch=3) + batch(2, base_offset=3, epoch=5)
    assert hears(copy, sent) is FetchOutcome.new_epochs
    assert copy.partition.log.end == 0
    assert copy.unrecorded_epochs == ((3, 0), (5, 3))
    copy.source_epochs = copy.unrecorded_epochs
    assert hears(copy, sent) is FetchOutcome.advanced
    assert copy.last_record_epoch == 5


def test_an_answer_to_what_is_past_is_passed_over(copy: MirroredPartition) -> None:
    copy.requested_offset = 3
    assert process_partition_data(copy, got(batch(1, base_offset=3, epoch=3)), 1.0) is FetchOutcome.advanced
    assert copy.partition.log.end == 0


@pytest.mark.parametrize(
    ("how", "outcome", "why"),
    [
        ({"error": ErrorCode.unknown_topic_id}, FetchOutcome.not_leader, ""),
        ({"error": ErrorCode.not_leader_or_follower}, FetchOutcome.not_leader, ""),
        ({"error": ErrorCode.offset_out_of_range}, FetchOutcome.out_of_range, ""),
        ({"error": ErrorCode.topic_authorization_failed}, FetchOutcome.retriable_error, ""),
        (
            {"diverging": (2, 1)},
            FetchOutcome.diverged,
            "records of leader epoch 2 up to offset 1 only; the copy ends at 3",
        ),
        ({"records": batch(3, base_offset=3, epoch=2)}, FetchOutcome.diverged, "leader epoch 2 at offset 3"),
        ({"records": batch(3, base_offset=2, epoch=3)}, FetchOutcome.diverged, "one batch from 2 to 4"),
        ({"end": 3}, FetchOutcome.unchanged, ""),
    ],
)
def test_what_a_source_may_say(
    copy: MirroredPartition, how: dict[str, object], outcome: FetchOutcome, why: str
) -> None:
    hears(copy, batch(3, base_offset=0, epoch=3))
    records = how.pop("records", b"")
    assert isinstance(records, bytes)
    assert hears(copy, records, **how) is outcome
    assert why in copy.reason
    assert copy.partition.log.end == 3


def test_a_start_inside_of_a_batch_keeps_the_batch_whole(copy: MirroredPartition) -> None:
    assert find_range(copy, 37, 100) is FetchOutcome.advanced
    assert copy.partition.log.end == 37
    assert hears(copy, batch(10, base_offset=30, epoch=3), start=37) is FetchOutcome.new_epochs
    copy.source_epochs = copy.unrecorded_epochs
    assert hears(copy, batch(10, base_offset=30, epoch=3), start=37) is FetchOutcome.advanced
    log = copy.partition.log
    assert (log.start, log.end) == (37, 40)


def test_where_the_source_ends_before_the_copy_it_has_lost_records(copy: MirroredPartition) -> None:
    hears(copy, batch(10, base_offset=0, epoch=3))
    assert find_range(copy, 0, 7) is FetchOutcome.diverged
    assert "its log ends at offset 7, the copy at 10" in copy.reason
    assert copy.partition.log.end == 10
    assert find_range(copy, 25, 30) is FetchOutcome.advanced
    assert (copy.partition.log.start, copy.partition.log.end) == (25, 25)


def test_the_log_start_waits_for_the_high_watermark(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2))
    copy = MirroredPartition(partition, "t", SOURCE, ((3, 0),))
    hears(copy, batch(10, base_offset=0, epoch=3), start=8)
    assert partition.log.start == 0
    fetch(partition, 2, 10)
    assert follow_start(copy)
    assert partition.log.start == 8


def test_what_is_led_anew_is_another_copy(copy: MirroredPartition) -> None:
    assert copy.is_leader
    committed(copy.partition, leader_epoch=2)
    assert not copy.is_leader


def test_what_is_corrupt_is_not_taken(copy: MirroredPartition) -> None:
    sent = bytearray(batch(3, base_offset=0, epoch=3))
    sent[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        hears(copy, bytes(sent))
    assert caught.value.code is ErrorCode.corrupt_message
    assert copy.partition.log.end == 0


def test_lag_in_bytes_goes_by_what_came_last(copy: MirroredPartition) -> None:
    assert copy.lag_bytes == 0, "nothing is known to be missing"
    copy.source_high_watermark = 10
    assert copy.lag_bytes == -1, "and there is nothing to go by"
    small, large = batch(5, base_offset=0, epoch=3), batch(5, base_offset=5, epoch=3, size=1000)
    hears(copy, small)
    assert copy.lag_bytes == round(95 * len(small) / 5)
    hears(copy, large)
    assert copy.lag_bytes == round(90 * (len(small) + len(large)) / 10)
    again = MirroredPartition(copy.partition, "t", SOURCE, copy.source_epochs)
    again.source_high_watermark = 20
    assert again.lag_bytes == round(10 * copy.partition.log.size / 10), "after a restart: by what is here"


def test_old_weights_fade() -> None:
    weight = BytesPerOffset()
    for _ in range(1000):
        weight.add(1 << 20, 1000)
    for _ in range(1000):
        weight.add(1 << 20, 10)
    assert weight.size / weight.offsets > 0.9 * (1 << 20) / 10


def test_how_long_nothing_was_heard(copy: MirroredPartition) -> None:
    assert copy.source_silence_s(5.0) == -1
    copy.last_response.received_s = 2.0
    assert copy.source_silence_s(5.0) == 3.0
