"""Opening after a crash: torn tails, corrupt indexes, unfinished swaps, corruption that must not be
cut off."""

import asyncio
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from ottla_broker.log import file_names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_snapshots import encode_producer_snapshot
from ottla_broker.log.recovery import LogCheckpoint
from ottla_broker.wire.batch import HEADER_SIZE
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.log_fixtures import NOW, FailingDisk, LogFolder, append_committed, batch, marker, offsets


def create_filled_log(folder: LogFolder, count: int = 60, **config: int) -> PartitionLog:
    folder.config = LogConfig(**({"segment_bytes": 1_500, "index_interval_bytes": 200} | config))  # type: ignore[arg-type]
    log = folder.create()
    for _ in range(count):
        append_committed(log, batch(2, size=30))
    return log


def files(folder: LogFolder, suffix: str) -> list[Path]:
    return sorted(Path(folder.directory).glob("*" + suffix))


def test_killed_process_loses_no_written_record(folder: LogFolder) -> None:
    log = create_filled_log(folder)
    again = folder.reopen()
    assert (again.start, again.end, again.failure) == (0, log.end, None)
    assert offsets(again) == list(range(120))
    assert again.recovery_point == 0
    append_committed(again, batch(1))
    assert offsets(again) == list(range(121))


@pytest.mark.parametrize("cut", [1, 30, 61, 100])
def test_torn_tail_is_cut_off(folder: LogFolder, cut: int) -> None:
    log = create_filled_log(folder)
    last = files(folder, ".log")[-1]
    os.truncate(last, last.stat().st_size - cut)
    again = folder.reopen()
    assert again.failure is None
    assert offsets(again) == list(range(again.end))
    assert 0 < log.end - again.end <= 4
    assert append_committed(again, batch(3)) == (again.end - 3, again.end - 1)
    assert offsets(folder.reopen()) == list(range(again.end))


@pytest.mark.parametrize("recovery_point", [0, 60, 119])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_empty_segment_of_a_failed_roll_is_removed_without_loss(
    folder: LogFolder, recovery_point: int, clean: bool, last: bool
) -> None:
    """Later offsets are in the segment before it."""
    log = create_filled_log(folder, segment_bytes=1_500)
    base = log.segments.active.base + 1 if last else log.segments[1].base + 1
    leftover = Path(file_names.segment_file(folder.directory, base, file_names.LOG))
    leftover.touch()
    again = folder.reopen(LogCheckpoint(clean, recovery_point))
    assert (again.end, again.failure) == (log.end, None)
    assert offsets(again) == list(range(120))
    assert not leftover.exists()


def test_garbage_after_the_end_is_cut_off(folder: LogFolder) -> None:
    log = create_filled_log(folder)
    for tail in (b"\0" * 300, os.urandom(200), b"\xff" * 61):
        with files(folder, ".log")[-1].open("ab") as file:
            file.write(tail)
        again = folder.reopen()
        assert (again.end, again.failure) == (log.end, None)


def test_corrupt_batch_ends_the_log_and_later_segments_are_removed(folder: LogFolder) -> None:
    create_filled_log(folder)
    third = files(folder, ".log")[2]
    data = bytearray(third.read_bytes())
    data[200] ^= 1
    third.write_bytes(data)
    again = folder.reopen()
    assert again.failure is None
    assert file_names.offset_of(third.name) <= again.end < file_names.offset_of(third.name) + 10  # type: ignore[operator]
    assert len(files(folder, ".log")) == 3
    assert offsets(again) == list(range(again.end))


def test_recovery_reads_only_what_follows_the_recovery_point(failing_folder: LogFolder) -> None:
    log = create_filled_log(failing_folder, 2_000, segment_bytes=1 << 20)
    log.seal()
    log.snapshots.write(3_900, encode_producer_snapshot([]))
    disk = failing_folder.disk
    assert isinstance(disk, FailingDisk)
    disk.log_bytes_read = 0
    again = failing_folder.reopen(LogCheckpoint(recovery_point=3_900))
    assert (again.end, again.failure) == (4_000, None)
    tail = log.size * 100 // 4_000
    assert disk.log_bytes_read < 3 * tail + 16_384 < log.size / 4


@pytest.mark.parametrize("point", [0, 1, 55, 56, 57, 118, 120])
def test_any_recovery_point_gives_the_same_log(folder: LogFolder, point: int) -> None:
    log = create_filled_log(folder)
    expected = [(segment.offsets.entries(), segment.times.entries()) for segment in log.segments]
    log.seal()
    again = folder.reopen(LogCheckpoint(recovery_point=point))
    assert (again.end, again.failure, again.recovery_point) == (120, None, point)
    assert offsets(again) == list(range(120))
    assert [(segment.offsets.entries(), segment.times.entries()) for segment in again.segments] == expected


def test_corruption_below_the_recovery_point_takes_the_partition_offline(folder: LogFolder) -> None:
    log = create_filled_log(folder, 40, segment_bytes=1 << 20)
    path = files(folder, ".log")[0]
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"  # the first batch's length; without indexes the search reads it
    path.write_bytes(data)
    for index in files(folder, "index"):
        index.unlink()
    again = folder.reopen(LogCheckpoint(recovery_point=log.end))
    assert again.failure is not None and again.failure.code is ErrorCode.kafka_storage_error
    assert path.name in str(again.failure) and "position 0" in str(again.failure) and "offset 0" in str(again.failure)
    # Nothing was cut off.
    assert path.read_bytes() == bytes(data)
    for action in (lambda: again.read(0, 1, up_to=1), lambda: append_committed(again, batch(1))):
        with pytest.raises(KafkaError, match=path.name):
            action()


def test_corruption_found_while_reading_takes_the_partition_offline(folder: LogFolder) -> None:
    log = create_filled_log(folder)
    log.seal()
    again = folder.reopen(LogCheckpoint(clean=True, recovery_point=log.end))
    path = files(folder, ".log")[1]
    data = bytearray(path.read_bytes())
    data[8:12] = b"\0\0\0\1"
    path.write_bytes(data)
    base = file_names.offset_of(path.name)
    assert base is not None
    with pytest.raises(KafkaError, match=path.name) as caught:
        again.read(base, 100, up_to=again.end)
    assert f"offset {base}" in str(caught.value)
    assert again.failure is caught.value


def test_corrupt_marker_takes_the_partition_offline_when_producers_are_rebuilt(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(2, producer=(7, 0, 0), transactional=True))
    position = log.size
    append_committed(log, marker(False, 7), from_client=False)
    append_committed(log, batch(1))
    path = files(folder, ".log")[0]
    data = bytearray(path.read_bytes())
    data[position + HEADER_SIZE] = 0xFF  # the length of the marker's record
    path.write_bytes(data)
    with pytest.raises(KafkaError, match=path.name) as caught:
        log.truncate_to(3)
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert log.failure is caught.value


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_index_is_rebuilt(folder: LogFolder, suffix: str, clean: bool) -> None:
    log = create_filled_log(folder)
    log.seal()
    before = {path.name: path.read_bytes() for path in files(folder, suffix)}
    for path in files(folder, suffix):
        path.unlink()
    again = folder.reopen(LogCheckpoint(clean=clean, recovery_point=log.end))
    assert offsets(again) == list(range(120))
    again.close()
    assert {path.name: path.read_bytes() for path in files(folder, suffix)} == before


@pytest.mark.parametrize("clean", [True, False])
def test_corrupt_index_is_rebuilt(folder: LogFolder, clean: bool) -> None:
    log = create_filled_log(folder)
    log.seal()
    last = files(folder, ".index")[-1]
    last.write_bytes(os.urandom(8 * 20))
    again = folder.reopen(LogCheckpoint(clean=clean, recovery_point=log.end - 4))
    assert (again.end, again.failure) == (log.end, None)
    assert offsets(again) == list(range(120))


def test_preallocated_zeros_after_an_index_are_no_entries(folder: LogFolder) -> None:
    """Apache Kafka preallocates its indexes; the zeros stay when it is killed."""
    log = create_filled_log(folder)
    log.seal()
    active = log.segments.active
    entries, times = active.offsets.entries(), active.times.entries()
    for path, size in ((active.offsets.path, 10 << 10), (active.times.path, 12 << 10)):
        os.truncate(path, size)
    again = folder.reopen(LogCheckpoint(clean=True, recovery_point=log.end))
    assert again.segments.active.offsets.entries() == entries
    assert again.segments.active.times.entries() == times
    for _ in range(5):
        append_committed(again, batch(5, size=100, timestamp=NOW + 5))
    again.close()
    assert Path(active.offsets.path).stat().st_size % 8 == 0
    again = folder.reopen(LogCheckpoint(clean=True))
    assert next(s for s in again.segments if s.base == active.base).offsets.entries()[: len(entries)] == entries


class TestUnfinishedSwaps:
    def test_deleted_and_cleaned_files_are_removed(self, folder: LogFolder) -> None:
        log = create_filled_log(folder)
        path = Path(folder.directory)
        for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.cleaned", "x.index.deleted"):
            (path / name).write_bytes(b"rest")
        again = folder.reopen()
        assert again.end == log.end
        assert not [one for one in path.iterdir() if one.suffix in (".deleted", ".cleaned")]

    def test_swap_file_replaces_the_segments_it_covers(self, folder: LogFolder) -> None:
        log = create_filled_log(folder)
        bases = list(log.segments.bases)
        assert len(bases) > 2
        path = Path(folder.directory)
        swap = batch(1, base_offset=1, epoch=0) + batch(1, base_offset=bases[2] - 1, epoch=0)
        (path / f"{0:020d}.log.swap").write_bytes(swap)
        again = folder.reopen()
        assert list(again.segments.bases) == [0, *bases[2:]]
        assert offsets(again)[:3] == [1, bases[2] - 1, bases[2]]
        assert not list(path.glob("*.swap"))

    def test_swap_file_of_an_unfinished_split_replaces_no_segment(self, folder: LogFolder) -> None:
        log = create_filled_log(folder, 5)
        path = Path(folder.directory)
        (path / f"{0:020d}.log.swap").write_bytes(batch(1))
        (path / f"{0:020d}.log.cleaned").write_bytes(b"")
        assert folder.reopen().end == log.end

    def test_index_without_a_log_is_removed(self, folder: LogFolder) -> None:
        create_filled_log(folder, 5)
        orphan = Path(folder.directory) / f"{777:020d}.index"
        orphan.write_bytes(b"12345678")
        folder.reopen()
        assert not orphan.exists()


def test_folder_without_segments_starts_at_its_checkpointed_start(folder: LogFolder) -> None:
    Path(folder.directory).mkdir()
    log = folder.reopen(LogCheckpoint(start=42))
    assert (log.start, log.end) == (42, 42)
    assert append_committed(log, batch(1)) == (42, 42)


def test_epochs_and_aborted_transactions_are_rebuilt_from_the_log(folder: LogFolder) -> None:
    log = folder.create()
    append_committed(log, batch(2, producer=(7, 0, 0), transactional=True), epoch=1)
    append_committed(log, marker(False, 7), epoch=3, from_client=False)
    append_committed(log, batch(1), epoch=8)
    entries, aborted = log.epochs.entries(), log.aborted_transactions(0, 4)
    again = folder.reopen()
    assert again.epochs.entries() == entries == [(1, 0), (3, 2), (8, 3)]
    assert again.aborted_transactions(0, 4) == aborted


def test_zeros_after_a_loss_of_power_are_no_aborted_transaction(folder: LogFolder) -> None:
    """A file's length may reach the device before its bytes. An entry of zeros would be a
    transaction of producer 0 at offset 0."""
    log = folder.create()
    append_committed(log, batch(1, producer=(0, 0, 0), transactional=True))
    append_committed(log, marker(True, 0), from_client=False)
    asyncio.run(log.checkpoint())
    append_committed(log, batch(1))
    Path(log.segments[0].transactions.path).write_bytes(bytes(68))
    again = folder.reopen(LogCheckpoint(recovery_point=log.recovery_point))
    assert (again.end, again.failure, again.aborted_transactions(0, 3)) == (3, None, [])
    append_committed(again, batch(1, producer=(0, 0, 1), transactional=True))
    append_committed(again, marker(False, 0), from_client=False)
    aborted = again.aborted_transactions(0, again.end)
    again.close()
    assert [one.last_offset for one in aborted] == [4]
    assert folder.reopen(LogCheckpoint(clean=True)).aborted_transactions(0, 5) == aborted


def test_unreadable_files_take_their_partition_offline(failing_folder: LogFolder) -> None:
    log = failing_folder.create()
    append_committed(log, batch(1))
    failing_folder.disk.broken = {".log"}  # type: ignore[attr-defined]
    again = failing_folder.reopen()
    assert again.failure is not None and ".log" in str(again.failure)
    (Path(failing_folder.directory) / file_names.LEADER_EPOCHS).write_text("7\nnonsense\n")
    failing_folder.disk.broken = set()  # type: ignore[attr-defined]
    assert "leader-epoch-checkpoint" in str(failing_folder.reopen().failure)


def test_recovery_point_does_not_lie_in_a_hole(folder: LogFolder) -> None:
    """A truncation may leave the end between batches. A recovery point there would make a torn tail
    a loss."""
    log = folder.create()
    log.append_as_follower(batch(1, base_offset=0, epoch=0) + batch(1, base_offset=10, epoch=0), leader_epoch=0)
    log.truncate_to(5)
    asyncio.run(log.checkpoint())
    assert (log.end, log.recovery_point) == (5, 1)
    append_committed(log, batch(1))
    path = files(folder, ".log")[0]
    os.truncate(path, path.stat().st_size - 1)
    again = folder.reopen(LogCheckpoint(recovery_point=log.recovery_point))
    assert (again.end, again.failure) == (1, None)


@pytest.mark.parametrize("compacted", [False, True])
def test_gap_between_segments_is_a_loss_unless_the_log_may_have_gaps(folder: LogFolder, compacted: bool) -> None:
    """After a loss of power a closed segment may be shorter than it was, and the next one whole."""
    log = create_filled_log(folder)
    folder.config = replace(folder.config, cleanup_compact=compacted)
    bases = list(log.segments.bases)
    os.truncate(log.segments[1].path, 0)
    for index in (log.segments[1].offsets.path, log.segments[1].times.path):
        os.truncate(index, 0)
    copy = LogFolder(folder.directory.replace("topic-0", "copy-0"), folder.config)
    shutil.copytree(folder.directory, copy.directory)
    assert folder.reopen().end == bases[1]
    assert copy.reopen(LogCheckpoint(gapless=False)).end == log.end


def test_segments_of_a_follower_have_no_gaps_where_its_leader_has_holes(folder: LogFolder) -> None:
    folder.config = LogConfig(cleanup_compact=True, segment_bytes=300)
    log = folder.create()
    for offset in range(0, 200, 10):
        log.append_as_follower(batch(1, size=60, base_offset=offset, epoch=0), leader_epoch=0)
    assert len(log.segments) > 3
    assert all(one.next_offset() == other.base for one, other in pairwise(log.segments))
    assert folder.reopen().end == log.end
