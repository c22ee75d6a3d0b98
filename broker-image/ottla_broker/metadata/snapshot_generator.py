"""Generates snapshots of the metadata, loads them at start-up, and deletes the log before them.

A snapshot is due when as many bytes were appended since the last one as that one holds, and at
least a mebibyte, so that snapshots cost a bounded share of the writes. At the latest it is due
after `metadata.log.max.record.bytes.between.snapshots` or `metadata.log.max.snapshot.interval.ms`,
whichever comes first.
"""

import asyncio
import logging

import msgspec

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.metadata_log import CommittedLogDiverged, MetadataLog
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.snapshots import MAX_SNAPSHOTS
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MIN_BYTES_BETWEEN_SNAPSHOTS = 1 << 20
CHECK_INTERVAL_S = 1.0
RETRY_PAUSE_S = 60.0


class SnapshotIntervals(msgspec.Struct, frozen=True):
    """Limits between two snapshots, if there are new records. `max_ms` 0: no limit."""

    max_bytes: int = 20 << 20
    max_ms: int = 3_600_000


async def run_snapshot_generator(log: MetadataLog, intervals: SnapshotIntervals, runtime: Runtime) -> None:
    """Generates snapshots until cancelled. A failure is logged and retried after
    `RETRY_PAUSE_S`.
    """
    loop = asyncio.get_running_loop()
    last_snapshot_s = loop.time()
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        if not is_snapshot_due(log, intervals, since_s=loop.time() - last_snapshot_s):
            continue
        try:
            await generate_snapshot(log, runtime)
        except (KafkaError, OSError) as reason:
            logger.warning("failed to generate a metadata snapshot: %s", reason)
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            last_snapshot_s = loop.time()


def is_snapshot_due(log: MetadataLog, intervals: SnapshotIntervals, since_s: float) -> bool:
    """`since_s`: time since the last snapshot."""
    newest = log.snapshots.latest
    if log.image.end_offset <= (0 if newest is None else newest.offset):
        return False
    newest_bytes = 0 if newest is None else log.snapshots.file_size(newest)
    is_overdue = intervals.max_ms > 0 and since_s * 1000 >= intervals.max_ms
    return is_overdue or log.bytes_since_snapshot >= min(
        intervals.max_bytes, max(MIN_BYTES_BETWEEN_SNAPSHOTS, newest_bytes)
    )


async def generate_snapshot(log: MetadataLog, runtime: Runtime) -> EpochAndOffset:
    """Writes a snapshot of the committed state and deletes the log before the older snapshot.
    Raises KafkaError, OSError.
    """
    end, counted = log.image.end_offset, log.bytes_since_snapshot
    snapshot = EpochAndOffset(log.partition_log.epochs.epoch_for_offset(end - 1), end)
    records = log.image.to_records(snapshot.epoch)
    voters = log.voters.at(end)
    await log.partition_log.wait_until_synced(end)
    await runtime.run_in_thread(log.snapshots.write, snapshot, voters, records, runtime.now_ms())
    oldest = log.snapshots.add_snapshot(snapshot)
    log.bytes_since_snapshot -= counted
    if len(log.snapshots.snapshot_ids) == MAX_SNAPSHOTS:
        log.partition_log.roll()  # whole segments are deleted
        log.partition_log.delete_records_before(oldest.offset)
    logger.info("generated a metadata snapshot at offset %d with %d records", end, len(records))
    return snapshot


def load_image(log: MetadataLog) -> None:
    """Loads the newest readable snapshot and the committed records after it into the empty image.
    Raises KAFKA_STORAGE_ERROR when the log does not start at 0 and no snapshot can be read;
    UNSUPPORTED_VERSION for records of a newer version."""
    for snapshot in reversed(log.snapshots.snapshot_ids):
        if snapshot.offset < log.partition_log.start:
            break
        try:
            found = read_snapshot_image(log, snapshot)
        except KafkaError as reason:
            if reason.code is ErrorCode.unsupported_version:
                raise
            logger.warning("ignoring the metadata snapshot at offset %d: %s", snapshot.offset, reason)
            continue
        log.image.replace_with(found)
        log.voters.restart(log.snapshots.read_voters(snapshot))
        log.load_voters(snapshot.offset)
        if snapshot.offset > log.partition_log.end:  # the records after it were lost in a power failure
            log.partition_log.truncate_fully_and_start_at(snapshot.offset)
        log.bytes_since_snapshot = log.partition_log.size_from(snapshot.offset)
        log.advance_high_watermark(snapshot.offset)
        return
    if log.partition_log.start > 0:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{log.partition_log.directory} starts at offset {log.partition_log.start}, and no "
            "snapshot holds the state before it",
        )
    log.bytes_since_snapshot = log.partition_log.size
    log.load_voters(0)
    log.apply_committed()


def read_snapshot_image(log: MetadataLog, snapshot: EpochAndOffset) -> MetadataImage:
    """The image that a snapshot holds. Raises what `SnapshotStore.read_records` raises."""
    image = MetadataImage()
    image.apply_records(enumerate(log.snapshots.read_records(snapshot)))
    log.records_read += image.end_offset
    image.end_offset = snapshot.offset
    return image


def install_snapshot(log: MetadataLog, snapshot: EpochAndOffset) -> None:
    """Replaces this broker's log, which ends or diverges before the leader's log starts, by the
    leader's snapshot in the folder. Raises CommittedLogDiverged when the snapshot is below the high
    watermark; what `SnapshotStore.read_records` raises.
    """
    if snapshot.offset < log.high_watermark:
        raise CommittedLogDiverged(
            ErrorCode.unknown_server_error,
            f"the snapshot at offset {snapshot.offset} is below the high watermark {log.high_watermark}",
        )
    found = read_snapshot_image(log, snapshot)
    log.snapshots.add_snapshot(snapshot)
    log.voters.restart(log.snapshots.read_voters(snapshot))
    log.partition_log.truncate_fully_and_start_at(snapshot.offset)
    log.bytes_since_snapshot = 0
    logger.info("installed the leader's metadata snapshot at offset %d", snapshot.offset)
    log.on_commit(log.image.replace_with(found))
