"""What a leader does with what its source answers, on real logs."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.mirroring.copying import Copy, Outcome, Weight, find_range, follow_start, take
from ottla_broker.wire.batch import batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.replica_fetch import Got
from tests.unit.log.making import batch
from tests.unit.replication.leading import Peers, committed, fetch, led

SOURCE = UUID(int=99)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(led(tmp_path, Peers(), isr=(1,)), "t", SOURCE, ((3, 0),))


def got(
    records: bytes = b"",
    *,
    end: int = 100,
    start: int = 0,
    error: ErrorCode = ErrorCode.none,
    diverging: tuple[int, int] | None = None,
) -> Got:
    return Got(SOURCE, 0, error, end, start, memoryview(bytearray(records)), diverging)


def hears(copy: Copy, *args: bytes, **how: object) -> Outcome:
    """To a request for what follows the log's end."""
    copy.asked = copy.partition.log.end
    return take(copy, got(*args, **how), 1.0)  # type: ignore[arg-type]


def test_batches_keep_everything_but_the_leader_epoch(copy: Copy) -> None:
    sent = batch(3, base_offset=0, epoch=3, producer=(7, 1, 0)) + batch(2, base_offset=10, epoch=3)
    assert hears(copy, sent + batch(1, base_offset=12, epoch=3)[:40]) is Outcome.moved
    log = copy.partition.log
    assert (log.start, log.end, log.high_watermark) == (0, 12, 12), "the hole stays one, what was cut off is left"
    kept = bytearray(log.read(0, 10_000, up_to=12))
    assert [header.leader_epoch for _, header in batches(kept)] == [1, 1]
    assert [producer.producer_id for producer in log.producers] == [7]
    for at, _ in list(batches(kept)):
        kept[at + 12 : at + 16] = (3).to_bytes(4)
    assert kept == sent
    assert copy.lag == 88 and copy.last_epoch == 3


def test_a_new_epoch_is_written_down_before_its_records(copy: Copy) -> None:
    sent = batch(3, base_offset=0, epoch=3) + batch(2, base_offset=3, epoch=5)
    assert hears(copy, sent) is Outcome.learned
    assert copy.partition.log.end == 0
    assert copy.to_learn == ((3, 0), (5, 3))
    copy.epochs = copy.to_learn
    assert hears(copy, sent) is Outcome.moved
    assert copy.last_epoch == 5


def test_an_answer_to_what_is_past_is_passed_over(copy: Copy) -> None:
    copy.asked = 3
    assert take(copy, got(batch(1, base_offset=3, epoch=3)), 1.0) is Outcome.moved
    assert copy.partition.log.end == 0


@pytest.mark.parametrize(
    ("how", "outcome", "why"),
    [
        ({"error": ErrorCode.unknown_topic_id}, Outcome.elsewhere, ""),
        ({"error": ErrorCode.not_leader_or_follower}, Outcome.elsewhere, ""),
        ({"error": ErrorCode.offset_out_of_range}, Outcome.out_of_range, ""),
        ({"error": ErrorCode.topic_authorization_failed}, Outcome.failed, ""),
        ({"diverging": (2, 1)}, Outcome.parted, "records of leader epoch 2 up to offset 1 only; the copy ends at 3"),
        ({"records": batch(3, base_offset=3, epoch=2)}, Outcome.parted, "leader epoch 2 at offset 3"),
        ({"records": batch(3, base_offset=2, epoch=3)}, Outcome.parted, "one batch from 2 to 4"),
        ({"end": 3}, Outcome.same, ""),
    ],
)
def test_what_a_source_may_say(copy: Copy, how: dict[str, object], outcome: Outcome, why: str) -> None:
    hears(copy, batch(3, base_offset=0, epoch=3))
    records = how.pop("records", b"")
    assert isinstance(records, bytes)
    assert hears(copy, records, **how) is outcome
    assert why in copy.why
    assert copy.partition.log.end == 3


def test_a_start_inside_of_a_batch_keeps_the_batch_whole(copy: Copy) -> None:
    assert find_range(copy, 37, 100) is Outcome.moved
    assert copy.partition.log.end == 37
    assert hears(copy, batch(10, base_offset=30, epoch=3), start=37) is Outcome.learned
    copy.epochs = copy.to_learn
    assert hears(copy, batch(10, base_offset=30, epoch=3), start=37) is Outcome.moved
    log = copy.partition.log
    assert (log.start, log.end) == (37, 40)


def test_where_the_source_ends_before_the_copy_it_has_lost_records(copy: Copy) -> None:
    hears(copy, batch(10, base_offset=0, epoch=3))
    assert find_range(copy, 0, 7) is Outcome.parted
    assert "its log ends at offset 7, the copy at 10" in copy.why
    assert copy.partition.log.end == 10
    assert find_range(copy, 25, 30) is Outcome.moved
    assert (copy.partition.log.start, copy.partition.log.end) == (25, 25)


def test_the_log_start_waits_for_the_high_watermark(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1, 2))
    copy = Copy(partition, "t", SOURCE, ((3, 0),))
    hears(copy, batch(10, base_offset=0, epoch=3), start=8)
    assert partition.log.start == 0
    fetch(partition, 2, 10)
    assert follow_start(copy)
    assert partition.log.start == 8


def test_what_is_led_anew_is_another_copy(copy: Copy) -> None:
    assert copy.is_led
    committed(copy.partition, leader_epoch=2)
    assert not copy.is_led


def test_what_is_corrupt_is_not_taken(copy: Copy) -> None:
    sent = bytearray(batch(3, base_offset=0, epoch=3))
    sent[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        hears(copy, bytes(sent))
    assert caught.value.code is ErrorCode.corrupt_message
    assert copy.partition.log.end == 0


def test_lag_in_bytes_goes_by_what_came_last(copy: Copy) -> None:
    assert copy.lag_bytes == 0, "nothing is known to be missing"
    copy.source_end = 10
    assert copy.lag_bytes == -1, "and there is nothing to go by"
    small, large = batch(5, base_offset=0, epoch=3), batch(5, base_offset=5, epoch=3, size=1000)
    hears(copy, small)
    assert copy.lag_bytes == round(95 * len(small) / 5)
    hears(copy, large)
    assert copy.lag_bytes == round(90 * (len(small) + len(large)) / 10)
    again = Copy(copy.partition, "t", SOURCE, copy.epochs)
    again.source_end = 20
    assert again.lag_bytes == round(10 * copy.partition.log.size / 10), "after a restart: by what is here"


def test_old_weights_fade() -> None:
    weight = Weight()
    for _ in range(1000):
        weight.add(1 << 20, 1000)
    for _ in range(1000):
        weight.add(1 << 20, 10)
    assert weight.size / weight.offsets > 0.9 * (1 << 20) / 10


def test_how_long_nothing_was_heard(copy: Copy) -> None:
    assert copy.silent_s(5.0) == -1
    copy.sign_of_life.heard_s = 2.0
    assert copy.silent_s(5.0) == 3.0
