"""When snapshots are made, and what becomes of the log then: a start reads the newest snapshot and what came after it, however long the history is.

A snapshot is due when as much has come since the last as the last holds, and at least a mebibyte, so that making them costs a bounded share of what is
written; and after a while in any case (`metadata.log.max.record.bytes.between.snapshots`, `metadata.log.max.snapshot.interval.ms`).
"""

import asyncio
import logging
from dataclasses import dataclass

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.image_records import image_to_records, replace_image
from ottla_broker.metadata.metadata_log import CommittedLogDiverged, MetadataLog
from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.metadata.snapshots import MAX_SNAPSHOTS
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MIN_BYTES_BETWEEN_SNAPSHOTS = 1 << 20
CHECK_INTERVAL_S = 1.0
RETRY_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class SnapshotIntervals:
    """`most_bytes`: of records between two snapshots; `most_ms`: between two snapshots while anything changes; 0: time does not count."""

    max_bytes: int = 20 << 20
    max_ms: int = 3_600_000


async def run_snapshot_generator(log: MetadataLog, intervals: SnapshotIntervals, runtime: Runtime) -> None:
    """Until cancelled. What fails is told, and tried again after a while."""
    loop = asyncio.get_running_loop()
    last = loop.time()
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        if not is_snapshot_due(log, intervals, since_s=loop.time() - last):
            continue
        try:
            await generate_snapshot(log, runtime)
        except (KafkaError, OSError) as reason:
            logger.warning("no snapshot of the metadata could be made: %s", reason)
            await asyncio.sleep(RETRY_PAUSE_S)
        last = loop.time()


def is_snapshot_due(log: MetadataLog, intervals: SnapshotIntervals, since_s: float) -> bool:
    newest = log.snapshots.latest
    if log.image.end_offset <= (0 if newest is None else newest.offset):
        return False
    held = 0 if newest is None else log.snapshots.file_size(newest)
    overdue = intervals.max_ms > 0 and since_s * 1000 >= intervals.max_ms
    return overdue or log.bytes_since_snapshot >= min(intervals.max_bytes, max(MIN_BYTES_BETWEEN_SNAPSHOTS, held))


async def generate_snapshot(log: MetadataLog, runtime: Runtime) -> EpochAndOffset:
    """Writes a snapshot of what is committed now, and lets go of what was before the one before it. KafkaError, OSError."""
    end, counted = log.image.end_offset, log.bytes_since_snapshot
    snapshot = EpochAndOffset(log.log.epochs.epoch_for_offset(end - 1), end)
    records = image_to_records(log.image, snapshot.epoch)
    await log.log.wait_until_synced(end)
    await runtime.run_in_thread(log.snapshots.write, snapshot, records, runtime.now_ms())
    oldest = log.snapshots.add_snapshot(snapshot)
    log.bytes_since_snapshot -= counted
    if len(log.snapshots.snapshot_ids) == MAX_SNAPSHOTS:
        log.log.roll()  # so that what is before it can go, file by file
        log.log.delete_records_before(oldest.offset)
    logger.info("a snapshot of the metadata up to offset %d: %d records", end, len(records))
    return snapshot


def load_image(log: MetadataLog) -> None:
    """The newest snapshot that can be read, and the committed records after it, into an image that is empty. KafkaError when neither tells what the
    log's beginning was, UNSUPPORTED_VERSION when a newer version wrote them."""
    for snapshot in reversed(log.snapshots.snapshot_ids):
        if snapshot.offset < log.log.start:
            break
        try:
            found = read_snapshot_image(log, snapshot)
        except KafkaError as reason:
            if reason.code is ErrorCode.unsupported_version:
                raise
            logger.warning("the metadata's snapshot at offset %d cannot be used: %s", snapshot.offset, reason)
            continue
        replace_image(log.image, found)
        if snapshot.offset > log.log.end:  # what came after it was lost with the power
            log.log.truncate_fully_and_start_at(snapshot.offset)
        log.bytes_since_snapshot = log.log.size_from(snapshot.offset)
        log.advance_high_watermark(snapshot.offset)
        return
    if log.log.start > 0:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{log.log.directory} begins at offset {log.log.start}, and no snapshot says what was before",
        )
    log.bytes_since_snapshot = log.log.size
    log.apply_committed()


def read_snapshot_image(log: MetadataLog, snapshot: EpochAndOffset) -> MetadataImage:
    image = MetadataImage()
    image.apply_records(enumerate(log.snapshots.read_records(snapshot)))
    log.records_read += image.end_offset
    image.end_offset = snapshot.offset
    return image


def install_snapshot(log: MetadataLog, snapshot: EpochAndOffset) -> None:
    """A leader's snapshot, which is in the folder, takes the place of this broker's log: what it was lies below the leader's beginning."""
    if snapshot.offset < log.high_watermark:
        raise CommittedLogDiverged(
            ErrorCode.unknown_server_error, f"a snapshot at {snapshot.offset} is older than what is committed here"
        )
    found = read_snapshot_image(log, snapshot)
    log.snapshots.add_snapshot(snapshot)
    log.log.truncate_fully_and_start_at(snapshot.offset)
    log.bytes_since_snapshot = 0
    logger.info("took over the leader's snapshot of the metadata up to offset %d", snapshot.offset)
    log.publish(replace_image(log.image, found))
