"""Batches, logs, a clock that tests move, and disks that fail on demand, for the tests of the
log."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import File, OsDisk
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import Buffer, Compression, iter_batches
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.records import Record, encode_batch, iter_records

NOW = 1_700_000_000_000
TOPIC_ID = UUID(int=0x1234_5678_9ABC_4EF0_8123_4567_89AB_CDEF)


@dataclass
class Clock:
    """Stands still unless a test moves it."""

    now_ms: int = NOW

    def __call__(self) -> int:
        return self.now_ms


def runtime(clock: Clock | None = None, seed: int = 1) -> Runtime:
    return Runtime(now_ms=clock or Clock(), random=Random(seed))


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW,
    size: int = 10,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    base_offset: int = 0,
    epoch: int = -1,
    compression: Compression = Compression.none,
    step_ms: int = 0,
) -> bytes:
    """`count` records of `size` bytes; `producer`: id, epoch, base sequence."""
    records = [Record(timestamp + n * step_ms, b"k%d" % n, b"v" * size) for n in range(count)]
    producer_id, producer_epoch, sequence = producer
    return bytes(
        encode_batch(
            records,
            base_offset=base_offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
            compression=compression,
        )
    )


def marker(commit: bool, producer_id: int, *, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    return bytes(
        encode_end_transaction_marker(
            commit, coordinator_epoch, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=NOW
        )
    )


def spans(data: Buffer) -> list[tuple[int, int]]:
    """(first, last offset) of each batch."""
    return [(header.base_offset, header.last_offset) for _, header in iter_batches(data)]


def offsets(log: PartitionLog, max_bytes: int = 1 << 20) -> list[int]:
    """Every offset of every batch, read as a consumer reads. `max_bytes`: of each read."""
    found: list[int] = []
    at = log.start
    while at < log.end and (data := log.read(at, max_bytes, up_to=log.end)):
        for first, last in spans(data):
            found += range(first, last + 1)
            at = last + 1
    return found


def read_records(log: PartitionLog) -> list[Record]:
    """Every record of the log, read as a consumer reads."""
    found: list[Record] = []
    at = log.start
    while at < log.end:
        data = log.read(at, 1 << 20, up_to=log.end)
        found += [record for _, record in iter_records(data) if record.offset >= at]
        at = spans(data)[-1][1] + 1
    return found


class FailingDisk(OsDisk):
    """Keeps real files. `room`: bytes that may still be written (None: no limit). `broken`: parts
    of the paths that cannot be read or written. `descriptors`: how many files may still be opened
    before one must be closed. `synced`: paths of files, one for each fsync. `log_bytes_read`: bytes
    that were read from log files."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken: set[str] = set()
        self.synced: list[str] = []
        self.log_bytes_read = 0
        self.descriptors: int | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> "FailingFile":  # type: ignore[override]
        if self.descriptors is not None:
            if self.descriptors <= 0:
                # As if the caller closed one.
                self.descriptors += 1
                raise OSError(errno.EMFILE, "Too many open files", path)
            self.descriptors -= 1
        return FailingFile(self, super().open(path, create=create, read_only=read_only))

    def replace_file(self, path: str, data: bytes) -> None:
        self.take(len(data), path)
        super().replace_file(path, data)

    def take(self, count: int, path: str) -> None:
        """Uses up room for `count` bytes. Raises OSError if there is none, or if the path is
        broken.
        """
        if any(name in path for name in self.broken):
            raise OSError(errno.EIO, "Input/output error", path)
        if self.room is not None:
            if count > self.room:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            self.room -= count


class FailingFile:
    """A file whose reads, appends and syncs fail as its disk says."""

    def __init__(self, disk: FailingDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path

    def size(self) -> int:
        return self._file.size()

    def read(self, count: int, at: int) -> bytes:
        self._disk.take(0, self.path)
        data = self._file.read(count, at)
        if self.path.endswith(".log"):
            self._disk.log_bytes_read += len(data)
        return data

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        self._disk.take(sum(map(len, buffers)), self.path)
        return self._file.append(buffers)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.take(0, self.path)
        self._disk.synced.append(self.path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


@dataclass
class LogFolder:
    """A folder for one partition, whose log is opened and reopened."""

    directory: str
    config: LogConfig = field(default_factory=LogConfig)
    clock: Clock = field(default_factory=Clock)
    disk: OsDisk = field(default_factory=OsDisk)

    def __post_init__(self) -> None:
        self.storage = Storage(self.disk, runtime(self.clock))

    def create(self) -> PartitionLog:
        return create_log(self.storage, self.directory, "topic", 0, TOPIC_ID, self.config)

    def reopen(self, checkpoint: LogCheckpoint | None = None) -> PartitionLog:
        """Opens the log as a new process does: it shares nothing with the log that was open
        before."""
        self.storage.files.close_all()
        self.storage = Storage(self.disk, runtime(self.clock))
        return open_log(self.storage, self.directory, "topic", 0, self.config, checkpoint or LogCheckpoint())


def append_committed(log: PartitionLog, data: bytes, *, epoch: int = 0, from_client: bool = True) -> tuple[int, int]:
    """Appends as leader and advances the high watermark, as with one replica; (first, last
    offset)."""
    now_ms = log.storage.runtime.now_ms()
    done = log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, from_client=from_client)
    log.advance_high_watermark(log.end)
    return done.first_offset, done.last_offset
