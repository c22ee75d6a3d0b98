"""What a leader does with what a source that is appended answers, on real logs."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.log.producer_state import LASTING
from ottla_broker.mirroring.appending import Appending
from ottla_broker.mirroring.copying import Copy, Outcome, take
from ottla_broker.mirroring.positions import END
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.replica_fetch import Got
from tests.unit.log.making import batch, spans
from tests.unit.replication.leading import Peers, led

SOURCE = UUID(int=99)
MARK = LASTING + 1


def copy_of(folder: Path, *, resyncs: bool = False, recorded: int = 0) -> Copy:
    partition = led(folder, Peers(), isr=(1,), records=5)
    return Copy(partition, "t", SOURCE, ((3, 0),), Appending(MARK, recorded, resyncs))


def hears(copy: Copy, *records: bytes, end: int = 100, diverging: tuple[int, int] | None = None) -> Outcome:
    copy.asked = copy.position
    got = Got(SOURCE, 0, ErrorCode.none, end, 0, memoryview(bytearray(b"".join(records))), diverging)
    outcome = take(copy, got, 1.0)
    if outcome is not Outcome.learned:
        return outcome
    copy.epochs = copy.to_learn
    return hears(copy, *records, end=end, diverging=diverging)


def test_records_get_offsets_behind_what_is_there(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    assert hears(copy, batch(3, base_offset=0, epoch=3), batch(2, base_offset=10, epoch=4)) is Outcome.moved
    log = copy.partition.log
    assert spans(log.read(5, 10_000, up_to=log.end)) == [(5, 7), (8, 9)], "a hole of the source's is none here"
    assert (copy.position, copy.last_epoch, copy.lag) == (12, 4, 88)


def test_a_source_that_starts_later_is_followed_there(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    assert copy.manner.find_range(copy, 37, 100) is Outcome.moved
    assert (copy.position, copy.last_epoch) == (37, -1)
    assert hears(copy, batch(10, base_offset=30, epoch=3)) is Outcome.moved, "its log starts inside of a batch"
    assert copy.position == 40


def test_a_batch_of_which_a_part_was_copied_is_not_taken(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    hears(copy, batch(3, base_offset=0, epoch=3))
    assert hears(copy, batch(3, base_offset=2, epoch=3)) is Outcome.parted
    assert "one batch from 2 to 4, of which a part was copied, up to 3" in copy.why


@pytest.mark.parametrize("resyncs", [False, True])
def test_where_the_source_has_parted_it_goes_on_only_if_wished(tmp_path: Path, resyncs: bool) -> None:
    copy = copy_of(tmp_path, resyncs=resyncs)
    hears(copy, batch(8, base_offset=0, epoch=3))
    ends = copy.partition.log.end
    if not resyncs:
        assert hears(copy, diverging=(2, 5)) is Outcome.parted
        assert "records of leader epoch 2 up to offset 5 only; the copy ends at 8" in copy.why
        assert copy.manner.find_range(copy, 0, 5) is Outcome.parted
        return
    assert hears(copy, diverging=(2, 5)) is Outcome.moved
    assert (copy.position, copy.partition.log.end) == (5, ends), "what the source has lost stays here"
    assert hears(copy, batch(2, base_offset=5, epoch=4)) is Outcome.moved
    assert (copy.position, copy.partition.log.end) == (7, ends + 2)
    assert copy.manner.find_range(copy, 0, 6) is Outcome.moved
    assert copy.position == 6


def test_offsets_that_cannot_be_carried_stop_it(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    copy.manner.find_range(copy, END, END + 5)
    assert hears(copy, batch(1, base_offset=END, epoch=3)) is Outcome.parted
    assert f"offset {END}: those that can be carried are below" in copy.why
    assert copy.partition.log.end == 5


def test_what_somebody_else_has_copied_meanwhile_is_not_copied_again(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    late = Copy(copy.partition, "t", SOURCE, ((3, 0),), Appending(MARK, 0, False))
    hears(copy, batch(3, base_offset=0, epoch=3))
    assert hears(late, batch(3, base_offset=0, epoch=3)) is Outcome.moved
    assert (late.position, late.partition.log.end) == (3, 8)
