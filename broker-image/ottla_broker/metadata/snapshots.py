"""Snapshots of the metadata in the metadata log's folder, with Kafka's file names:
`<offset>-<epoch>.checkpoint`.

A snapshot holds, as record batches, the voters and the state that results from the records below
`offset`; `epoch` is that of the last of them. A file is written under another name, synced and
renamed, so it is always complete. The newest two are kept, and the log from the older one on, so
that a broker that is slightly behind needs no snapshot.
"""

import re
from collections.abc import Iterator, Sequence

from ottla_broker.log.disk import Disk
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import MetadataRecord, decode_record, encode_record
from ottla_broker.metadata.voter_history import encode_voters_batch, iter_voter_sets
from ottla_broker.metadata.voter_set import VoterSet
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch, iter_records

MAX_SNAPSHOTS = 2
RECORDS_PER_BATCH = 500
_FILE_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PARTIAL_SUFFIX = ".part"


class SnapshotStore:
    """The snapshots of one folder. `snapshot_ids`: oldest first."""

    def __init__(self, folder: str, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self.snapshot_ids: list[EpochAndOffset] = []
        for name in disk.list(folder):
            if found := _FILE_NAME.fullmatch(name):
                self.snapshot_ids.append(EpochAndOffset(int(found[2]), int(found[1])))
            elif name.endswith(_PARTIAL_SUFFIX):
                disk.remove(f"{folder}/{name}")
        self.snapshot_ids.sort(key=lambda snapshot: snapshot.offset)

    @property
    def latest(self) -> EpochAndOffset | None:
        return self.snapshot_ids[-1] if self.snapshot_ids else None

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the last record below `offset`, if a snapshot ends there."""
        return next((snapshot.epoch for snapshot in self.snapshot_ids if snapshot.offset == offset), None)

    def path(self, snapshot: EpochAndOffset) -> str:
        return f"{self._folder}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"

    def file_size(self, snapshot: EpochAndOffset) -> int:
        return self._disk.file_size(self.path(snapshot))

    def read_bytes(self, snapshot: EpochAndOffset, position: int, count: int) -> bytes:
        """Up to `count` bytes of the file from `position`. Raises OSError."""
        file = self._disk.open(self.path(snapshot), read_only=True)
        try:
            return file.read(count, position)
        finally:
            file.close()

    def read_records(self, snapshot: EpochAndOffset) -> Iterator[MetadataRecord]:
        """Raises KafkaError: CORRUPT_MESSAGE, UNSUPPORTED_VERSION, KAFKA_STORAGE_ERROR."""
        for header, record in iter_records(self._read_file(snapshot)):
            if record.value is not None and not header.is_control:
                yield decode_record(record.value)

    def read_voters(self, snapshot: EpochAndOffset) -> VoterSet:
        """The voters in a snapshot; none in one of Ottla 0.1. Raises KafkaError: CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR.
        """
        return next((voters for _, voters in iter_voter_sets(self._read_file(snapshot))), ())

    def _read_file(self, snapshot: EpochAndOffset) -> bytes:
        try:
            return self._disk.read_file(self.path(snapshot))
        except OSError as error:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"{self.path(snapshot)}: {error.strerror or error}"
            ) from error

    def write(self, snapshot: EpochAndOffset, voters: VoterSet, records: Sequence[MetadataRecord], now_ms: int) -> None:
        """Writes the file of a snapshot. Blocks until it is synced. Raises OSError."""
        batches = [encode_voters_batch(voters, now_ms, leader_epoch=snapshot.epoch)]
        batches += [
            encode_batch(
                [Record(now_ms, None, encode_record(record)) for record in records[at : at + RECORDS_PER_BATCH]],
                base_offset=at + 1,
                leader_epoch=snapshot.epoch,
            )
            for at in range(0, len(records), RECORDS_PER_BATCH)
        ]
        self._disk.replace_file(self.path(snapshot), b"".join(batches))

    def create_partial(self, snapshot: EpochAndOffset) -> None:
        """Starts a file for a snapshot that is received in chunks. It is empty even if an earlier
        transfer was interrupted. Raises OSError."""
        file = self._disk.open(self.path(snapshot) + _PARTIAL_SUFFIX, create=True)
        try:
            file.truncate(0)
        finally:
            file.close()

    def append_partial(self, snapshot: EpochAndOffset, data: bytes) -> None:
        file = self._disk.open(self.path(snapshot) + _PARTIAL_SUFFIX)
        try:
            file.append([data])
        finally:
            file.close()

    def complete_partial(self, snapshot: EpochAndOffset) -> None:
        """Syncs and renames the file. Blocks. Raises OSError."""
        file = self._disk.open(self.path(snapshot) + _PARTIAL_SUFFIX)
        try:
            file.sync()
        finally:
            file.close()
        self._disk.rename(self.path(snapshot) + _PARTIAL_SUFFIX, self.path(snapshot))
        self._disk.sync_directory(self._folder)

    def add_snapshot(self, snapshot: EpochAndOffset) -> EpochAndOffset:
        """Registers a complete file and deletes the oldest beyond `MAX_SNAPSHOTS`. Returns the
        oldest that remains.
        """
        if snapshot not in self.snapshot_ids:
            self.snapshot_ids.append(snapshot)
            self.snapshot_ids.sort(key=lambda snapshot: snapshot.offset)
        while len(self.snapshot_ids) > MAX_SNAPSHOTS:
            self._disk.remove(self.path(self.snapshot_ids.pop(0)))
        return self.snapshot_ids[0]
