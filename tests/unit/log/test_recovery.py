"""Opening after a crash: torn tails, wrong indexes, leftovers, corruption that must not be cut off."""

import asyncio
import os
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ottla_broker.log import file_names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_snapshots import encode_producer_snapshot
from ottla_broker.log.recovery import LogCheckpoint
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.making import NOW, FailingDisk, Place, batch, lead, marker, offsets


def filled(place: Place, count: int = 60, **config: int) -> PartitionLog:
    place.config = LogConfig(**({"segment_bytes": 1_500, "index_interval_bytes": 200} | config))  # type: ignore[arg-type]
    log = place.create()
    for _ in range(count):
        lead(log, batch(2, size=30))
    return log


def files(place: Place, suffix: str) -> list[Path]:
    return sorted(Path(place.directory).glob("*" + suffix))


def test_kill_9_loses_nothing_that_was_written(place: Place) -> None:
    log = filled(place)
    again = place.reopen()
    assert (again.start, again.end, again.failure) == (0, log.end, None)
    assert offsets(again) == list(range(120))
    assert again.recovery_point == 0
    lead(again, batch(1))
    assert offsets(again) == list(range(121))


@pytest.mark.parametrize("cut", [1, 30, 61, 100])
def test_a_torn_tail_is_cut_off(place: Place, cut: int) -> None:
    log = filled(place)
    last = files(place, ".log")[-1]
    os.truncate(last, last.stat().st_size - cut)
    again = place.reopen()
    assert again.failure is None
    assert offsets(again) == list(range(again.end))
    assert 0 < log.end - again.end <= 4
    assert lead(again, batch(3)) == (again.end - 3, again.end - 1)
    assert offsets(place.reopen()) == list(range(again.end))


@pytest.mark.parametrize("recovery_point", [0, 60, 119])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_an_empty_segment_that_never_began_takes_nothing_with_it(
    place: Place, recovery_point: int, clean: bool, last: bool
) -> None:
    """A roll that failed may have left it; what follows went on in the segment before it."""
    log = filled(place, segment_bytes=1_500)
    base = log.segments.active.base + 1 if last else log.segments[1].base + 1
    leftover = Path(file_names.segment_file(place.directory, base, file_names.LOG))
    leftover.touch()
    again = place.reopen(LogCheckpoint(clean, recovery_point))
    assert (again.end, again.failure) == (log.end, None)
    assert offsets(again) == list(range(120))
    assert not leftover.exists()


def test_garbage_behind_the_end_is_cut_off(place: Place) -> None:
    log = filled(place)
    for tail in (b"\0" * 300, os.urandom(200), b"\xff" * 61):
        with files(place, ".log")[-1].open("ab") as file:
            file.write(tail)
        again = place.reopen()
        assert (again.end, again.failure) == (log.end, None)


def test_a_broken_batch_ends_the_log_there_and_later_segments_go(place: Place) -> None:
    filled(place)
    third = files(place, ".log")[2]
    data = bytearray(third.read_bytes())
    data[200] ^= 1
    third.write_bytes(data)
    again = place.reopen()
    assert again.failure is None
    assert file_names.offset_of(third.name) <= again.end < file_names.offset_of(third.name) + 10  # type: ignore[operator]
    assert len(files(place, ".log")) == 3
    assert offsets(again) == list(range(again.end))


def test_recovery_reads_only_what_follows_the_recovery_point(failing: Place) -> None:
    log = filled(failing, 2_000, segment_bytes=1 << 20)
    log.seal()
    log.snapshots.write(3_900, encode_producer_snapshot([]))
    disk = failing.disk
    assert isinstance(disk, FailingDisk)
    disk.log_bytes_read = 0
    again = failing.reopen(LogCheckpoint(recovery_point=3_900))
    assert (again.end, again.failure) == (4_000, None)
    tail = log.size * 100 // 4_000
    assert disk.log_bytes_read < 3 * tail + 16_384 < log.size / 4


@pytest.mark.parametrize("point", [0, 1, 55, 56, 57, 118, 120])
def test_any_recovery_point_gives_the_same_log(place: Place, point: int) -> None:
    log = filled(place)
    expected = [segment.offsets.entries() for segment in log.segments], [s.times.entries() for s in log.segments]
    log.seal()
    again = place.reopen(LogCheckpoint(recovery_point=point))
    assert (again.end, again.failure, again.recovery_point) == (120, None, point)
    assert offsets(again) == list(range(120))
    rebuilt = [segment.offsets.entries() for segment in again.segments]
    assert rebuilt == expected[0]


def test_corruption_below_the_recovery_point_takes_the_partition_offline_by_name_and_offset(place: Place) -> None:
    log = filled(place, 40, segment_bytes=1 << 20)
    path = files(place, ".log")[0]
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"  # the first batch's length: the index no longer helps
    path.write_bytes(data)
    for index in files(place, "index"):
        index.unlink()
    again = place.reopen(LogCheckpoint(recovery_point=log.end))
    assert again.failure is not None and again.failure.code is ErrorCode.kafka_storage_error
    assert path.name in str(again.failure) and "position 0" in str(again.failure) and "offset 0" in str(again.failure)
    assert path.read_bytes() == bytes(data)  # nothing was cut off
    for action in (lambda: again.read(0, 1, up_to=1), lambda: lead(again, batch(1))):
        with pytest.raises(KafkaError, match=path.name):
            action()


def test_corruption_found_while_reading_takes_the_partition_offline(place: Place) -> None:
    log = filled(place)
    log.seal()
    again = place.reopen(LogCheckpoint(clean=True, recovery_point=log.end))
    path = files(place, ".log")[1]
    data = bytearray(path.read_bytes())
    data[8:12] = b"\0\0\0\1"
    path.write_bytes(data)
    base = file_names.offset_of(path.name)
    assert base is not None
    with pytest.raises(KafkaError, match=path.name) as caught:
        again.read(base, 100, up_to=again.end)
    assert f"offset {base}" in str(caught.value)
    assert again.failure is caught.value


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_index_is_built_anew(place: Place, suffix: str, clean: bool) -> None:
    log = filled(place)
    log.seal()
    before = {path.name: path.read_bytes() for path in files(place, suffix)}
    for path in files(place, suffix):
        path.unlink()
    again = place.reopen(LogCheckpoint(clean=clean, recovery_point=log.end))
    assert offsets(again) == list(range(120))
    again.close()
    assert {path.name: path.read_bytes() for path in files(place, suffix)} == before


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_full_of_nonsense_is_built_anew(place: Place, clean: bool) -> None:
    log = filled(place)
    log.seal()
    last = files(place, ".index")[-1]
    last.write_bytes(os.urandom(8 * 20))
    again = place.reopen(LogCheckpoint(clean=clean, recovery_point=log.end - 4))
    assert (again.end, again.failure) == (log.end, None)
    assert offsets(again) == list(range(120))


def test_preallocated_zeros_behind_an_index_are_no_entries(place: Place) -> None:
    """Apache Kafka preallocates its indexes and leaves the zeros there when it is killed."""
    log = filled(place)
    log.seal()
    active = log.segments.active
    entries, times = active.offsets.entries(), active.times.entries()
    for path, size in ((active.offsets.path, 10 << 10), (active.times.path, 12 << 10)):
        os.truncate(path, size)
    again = place.reopen(LogCheckpoint(clean=True, recovery_point=log.end))
    assert again.segments.active.offsets.entries() == entries
    assert again.segments.active.times.entries() == times
    for _ in range(5):
        lead(again, batch(5, size=100, timestamp=NOW + 5))
    again.close()
    assert Path(active.offsets.path).stat().st_size % 8 == 0
    again = place.reopen(LogCheckpoint(clean=True))
    assert next(s for s in again.segments if s.base == active.base).offsets.entries()[: len(entries)] == entries


class TestLeftovers:
    def test_deleted_and_cleaned_files_are_removed(self, place: Place) -> None:
        log = filled(place)
        folder = Path(place.directory)
        for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.cleaned", "x.index.deleted"):
            (folder / name).write_bytes(b"rest")
        again = place.reopen()
        assert again.end == log.end
        assert not [path for path in folder.iterdir() if path.suffix in (".deleted", ".cleaned")]

    def test_a_swap_replaces_the_segments_it_covers(self, place: Place) -> None:
        log = filled(place)
        bases = list(log.segments.bases)
        assert len(bases) > 2
        folder = Path(place.directory)
        swap = batch(1, base_offset=1, epoch=0) + batch(1, base_offset=bases[2] - 1, epoch=0)
        (folder / f"{0:020d}.log.swap").write_bytes(swap)
        again = place.reopen()
        assert list(again.segments.bases) == [0, *bases[2:]]
        assert offsets(again)[:3] == [1, bases[2] - 1, bases[2]]
        assert not list(folder.glob("*.swap"))

    def test_a_swap_of_an_unfinished_split_goes(self, place: Place) -> None:
        log = filled(place, 5)
        folder = Path(place.directory)
        (folder / f"{0:020d}.log.swap").write_bytes(batch(1))
        (folder / f"{0:020d}.log.cleaned").write_bytes(b"")
        assert place.reopen().end == log.end

    def test_an_index_without_a_log_goes(self, place: Place) -> None:
        filled(place, 5)
        orphan = Path(place.directory) / f"{777:020d}.index"
        orphan.write_bytes(b"12345678")
        place.reopen()
        assert not orphan.exists()


def test_a_folder_without_segments_starts_at_its_known_start(place: Place) -> None:
    Path(place.directory).mkdir()
    log = place.reopen(LogCheckpoint(start=42))
    assert (log.start, log.end) == (42, 42)
    assert lead(log, batch(1)) == (42, 42)


def test_epochs_and_aborted_transactions_are_rebuilt_from_the_log(place: Place) -> None:
    log = place.create()
    lead(log, batch(2, producer=(7, 0, 0), transactional=True), epoch=1)
    lead(log, marker(False, 7), epoch=3, from_client=False)
    lead(log, batch(1), epoch=8)
    entries, aborted = log.epochs.entries(), log.aborted_transactions(0, 4)
    again = place.reopen()
    assert again.epochs.entries() == entries == [(1, 0), (3, 2), (8, 3)]
    assert again.aborted_transactions(0, 4) == aborted


def test_zeros_that_a_loss_of_power_left_name_no_aborted_transaction(place: Place) -> None:
    """A file's length may reach the device before what was appended to it; version 0, producer 0, offset 0 is a whole entry."""
    log = place.create()
    lead(log, batch(1, producer=(0, 0, 0), transactional=True))
    lead(log, marker(True, 0), from_client=False)
    asyncio.run(log.checkpoint())
    lead(log, batch(1))
    Path(log.segments[0].transactions.path).write_bytes(bytes(68))
    again = place.reopen(LogCheckpoint(recovery_point=log.recovery_point))
    assert (again.end, again.failure, again.aborted_transactions(0, 3)) == (3, None, [])
    lead(again, batch(1, producer=(0, 0, 1), transactional=True))
    lead(again, marker(False, 0), from_client=False)
    aborted = again.aborted_transactions(0, again.end)
    again.close()
    assert [one.last_offset for one in aborted] == [4]
    assert place.reopen(LogCheckpoint(clean=True)).aborted_transactions(0, 5) == aborted


def test_unreadable_files_take_one_partition_offline_not_the_broker(failing: Place) -> None:
    log = failing.create()
    lead(log, batch(1))
    failing.disk.broken = {".log"}  # type: ignore[attr-defined]
    again = failing.reopen()
    assert again.failure is not None and ".log" in str(again.failure)
    (Path(failing.directory) / file_names.LEADER_EPOCHS).write_text("7\nnonsense\n")
    failing.disk.broken = set()  # type: ignore[attr-defined]
    assert "leader-epoch-checkpoint" in str(failing.reopen().failure)


def test_an_end_in_a_hole_protects_nothing_behind_it(place: Place) -> None:
    """Truncation may leave the end between batches; a recovery point there would take a torn tail for lost records."""
    log = place.create()
    log.append_as_follower(batch(1, base_offset=0, epoch=0) + batch(1, base_offset=10, epoch=0), leader_epoch=0)
    log.truncate_to(5)
    asyncio.run(log.checkpoint())
    assert (log.end, log.recovery_point) == (5, 1)
    lead(log, batch(1))
    path = files(place, ".log")[0]
    os.truncate(path, path.stat().st_size - 1)
    again = place.reopen(LogCheckpoint(recovery_point=log.recovery_point))
    assert (again.end, again.failure) == (1, None)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_gap_between_segments_is_a_loss_unless_somebody_else_left_it(place: Place, compacted: bool) -> None:
    """After a loss of power a closed segment may be shorter than it was, while the next one is there."""
    log = filled(place)
    place.config = replace(place.config, cleanup_compact=compacted)
    bases = list(log.segments.bases)
    os.truncate(log.segments[1].path, 0)
    for index in (log.segments[1].offsets.path, log.segments[1].times.path):
        os.truncate(index, 0)
    copy = Place(place.directory.replace("topic-0", "copy-0"), place.config)
    shutil.copytree(place.directory, copy.directory)
    assert place.reopen().end == bases[1]
    assert copy.reopen(LogCheckpoint(gapless=False)).end == log.end


def test_a_follower_s_segments_follow_each_other_whatever_holes_its_leader_s_log_has(place: Place) -> None:
    place.config = LogConfig(cleanup_compact=True, segment_bytes=300)
    log = place.create()
    for offset in range(0, 200, 10):
        log.append_as_follower(batch(1, size=60, base_offset=offset, epoch=0), leader_epoch=0)
    assert len(log.segments) > 3
    assert all(one.next_offset() == other.base for one, other in pairwise(log.segments))
    assert place.reopen().end == log.end
