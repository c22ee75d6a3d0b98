"""Small batches that are appended in one write: the log is as if they were appended one by one."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.log.config import LogConfig
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.batch import Buffer, Compression
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.log.log_fixtures import NOW, FailingDisk, LogFolder, batch, marker, offsets

Result = int | ErrorCode


def append_one_by_one(log: PartitionLog, batches: Sequence[bytes]) -> list[Result]:
    results: list[Result] = []
    for one in batches:
        try:
            results.append(log.append_as_leader(one, leader_epoch=3, now_ms=NOW).first_offset)
        except KafkaError as reason:
            results.append(reason.code)
    return results


def append_joined(log: PartitionLog, batches: Sequence[bytes]) -> list[Result]:
    """Appends batches as a broker does: those that are not joined are appended one by one."""
    joined = log.append_small_batches([bytearray(one) for one in batches], leader_epoch=3, now_ms=NOW)
    done = len(joined.first_offsets)
    assert joined.byte_count == sum(map(len, batches[:done]))
    return [*joined.first_offsets, *append_one_by_one(log, batches[done:])]


def with_wrong_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


plain = st.builds(
    batch,
    st.integers(1, 4),
    timestamp=st.integers(NOW - 10, NOW + 10) | st.sampled_from((-1, NOW + 7_200_000)),
    size=st.integers(0, 60),
    compression=st.sampled_from((Compression.none, Compression.lz4, Compression.zstd)),
    base_offset=st.sampled_from((0, 0, 0, 5)),
)
idempotent = st.builds(
    lambda producer, epoch, sequence: batch(1, producer=(producer, epoch, sequence)),
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(0, 3),
)
invalid = st.sampled_from((b"", batch(1)[:50], with_wrong_crc(batch(2)), batch(1) + batch(1), marker(True, 1)))
turns = st.lists(st.lists(plain | plain | idempotent | invalid, max_size=8), max_size=5)
configs = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from((400, 1 << 30)),
    index_interval_bytes=st.sampled_from((0, 100, 4096)),
    max_message_bytes=st.sampled_from((150, 1 << 20)),
    message_timestamp_type=st.sampled_from(("CreateTime", "CreateTime", "LogAppendTime")),
    compression_type=st.sampled_from(("producer", "producer", "lz4")),
)


def log_bytes(log: PartitionLog) -> Buffer:
    return b"".join(bytes(segment.file.read(segment.size, 0)) for segment in log.segments)


@given(turns, configs)
@settings(max_examples=300, deadline=None, database=None)
def test_log_is_as_if_the_batches_were_appended_one_by_one(turns: list[list[bytes]], config: LogConfig) -> None:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        folders = [LogFolder(f"{directory}/{name}", config) for name in ("joined", "single")]
        joined, single = (folder.create() for folder in folders)
        for batches in turns:
            assert append_joined(joined, batches) == append_one_by_one(single, batches)
            assert log_bytes(joined) == log_bytes(single)
            assert [one.base for one in joined.segments] == [one.base for one in single.segments]
            assert (joined.end, joined.epochs.entries()) == (single.end, single.epochs.entries())
            assert offsets(joined) == offsets(single)
        end = joined.end
        for log in (joined, single):
            log.close()
        again = [folder.reopen() for folder in folders]
        assert [log.end for log in again] == [end, end]
        # The state of idempotent producers is the same: both know the same duplicates.
        for batches in turns:
            assert append_joined(again[0], batches) == append_one_by_one(again[1], batches)
        for log in again:
            log.close()


class WriteRecordingDisk(FailingDisk):
    """`sizes`: sizes of the writes to log files."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def take(self, count: int, path: str) -> None:
        super().take(count, path)
        if count and path.endswith(".log"):
            self.sizes.append(count)


def test_batches_of_several_producers_are_one_write(tmp_path: Path) -> None:
    disk = WriteRecordingDisk()
    log = LogFolder(str(tmp_path / "topic-0"), disk=disk).create()
    first = batch(1)
    append_joined(log, [first])
    batches = [batch(2), batch(1, producer=(1, 0, 0)), batch(1, producer=(2, 0, 0)), batch(3)]
    assert append_joined(log, batches) == [1, 3, 4, 5]
    assert disk.sizes == [len(first), sum(map(len, batches))]


def test_second_batch_of_an_idempotent_producer_is_not_joined_with_the_first(folder: LogFolder) -> None:
    log = folder.create()
    append_joined(log, [batch(1)])
    batches = [batch(1, producer=(1, 0, sequence)) for sequence in (0, 1)]
    joined = log.append_small_batches([bytearray(one) for one in batches], leader_epoch=0, now_ms=NOW)
    assert joined.first_offsets == [1]


def test_batches_that_together_exceed_a_segment_are_not_joined_in_an_empty_one(tmp_path: Path) -> None:
    log = LogFolder(str(tmp_path / "topic-0"), LogConfig(segment_bytes=400)).create()
    append_joined(log, [batch(1, size=60) for _ in range(4)])
    assert len(log.segments) == 2
    assert all(segment.size <= 400 for segment in log.segments)


@pytest.mark.parametrize("is_full", [True, False])
def test_failed_write_leaves_the_log_as_it_was(failing_folder: LogFolder, is_full: bool) -> None:
    disk, log = failing_folder.disk, failing_folder.create()
    assert isinstance(disk, FailingDisk)
    append_joined(log, [batch(1), batch(1, producer=(1, 0, 0))])
    before = log_bytes(log)
    batches = [batch(1), batch(1, producer=(1, 0, 1)), batch(1)]
    if is_full:
        disk.room = len(batches[0])
    else:
        disk.broken.add(".log")
    with pytest.raises(KafkaError) as caught:
        log.append_small_batches([bytearray(one) for one in batches], leader_epoch=3, now_ms=NOW)
    assert caught.value.code is ErrorCode.kafka_storage_error
    disk.room, offline = None, log.failure is not None
    disk.broken.clear()
    assert (log.end, log_bytes(log), offline) == (2, before, not is_full)
    if is_full:  # the disk has room again: the batches are appended as if nothing had failed
        assert append_joined(log, batches) == [2, 3, 4]
        assert offsets(log) == [0, 1, 2, 3, 4]
