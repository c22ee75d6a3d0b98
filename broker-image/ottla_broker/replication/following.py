"""What a follower does with what its leader answered for one partition.

- Records are appended as they are; the high watermark and the log's start follow the leader's.
- Where the logs part (rule 2) the end of ours goes, back to where the leader's log and ours agree by their epochs; never by high watermark.
- Its high watermark does not fall because a leader that has just begun knows a lower one: only truncation takes it back.
"""

import logging
from enum import Enum, auto

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import HEADER, HEADER_SIZE
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.replica_fetch import FetchResponsePartition, Wanted

logger = logging.getLogger(__name__)

NO_EPOCH = -1


class Outcome(Enum):
    same = auto()  # nothing has changed of what we ask for next
    moved = auto()  # the log ends elsewhere now
    shortened = auto()  # it starts elsewhere now, for which somebody may wait at the leader
    out_of_range = auto()  # the leader has no such offset
    failed = auto()  # an error of the leader's, or of the metadata


def wanted(partition: Partition, max_bytes: int) -> Wanted:
    """What to ask the leader for next."""
    log = partition.log
    return Wanted(partition.partition, partition.leader_epoch, log.end, last_record_epoch(log), log.start, max_bytes)


def last_record_epoch(log: PartitionLog) -> int:
    """Of the last record; −1 for an empty log, which parts from no other."""
    return log.epochs.epoch_for_offset(log.end - 1) if log.end > log.start else NO_EPOCH


def take(partition: Partition, got: FetchResponsePartition) -> Outcome:
    """KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (of what was sent), KAFKA_STORAGE_ERROR."""
    if got.error is not ErrorCode.none:
        return Outcome.out_of_range if got.error is ErrorCode.offset_out_of_range else Outcome.failed
    before, start = partition.log.end, partition.log.start
    if got.diverging is not None:
        truncate_diverging(partition.log, *got.diverging)
        partition.on_log_truncated()
        return Outcome.moved if partition.log.end != before else Outcome.failed
    if len(got.records) >= HEADER_SIZE:
        _append(partition, got)
    partition.update_from_leader(got.high_watermark, got.log_start)
    if partition.log.end != before:
        return Outcome.moved
    if partition.log.start != start:
        return Outcome.shortened
    return Outcome.failed if got.records else Outcome.same  # what the leader has told it does not tell again unasked


def _append(partition: Partition, got: FetchResponsePartition) -> None:
    log = partition.log
    fields = HEADER.unpack_from(got.records)
    if fields[0] < log.end <= fields[0] + fields[6] and log.end == log.start:
        # The leader's log starts inside of a batch, and so would ours; it holds the batch whole all the same.
        log.truncate_fully_and_start_at(fields[0])
    appended = log.append_as_follower(got.records, leader_epoch=partition.leader_epoch)
    partition.traffic.replication_in += appended.byte_count


def truncate_diverging(log: PartitionLog, epoch: int, end: int) -> None:
    """Cuts our log where it parts from the leader's, whose largest epoch that is no newer than our last one is `epoch` and ends at `end`.
    If that is an epoch that we do not have, this is not the last word: the next fetch goes on from there."""
    _, ours = log.epochs.end_offset_for(epoch, log.end)
    to = min(end, ours if ours >= 0 else log.end, log.end)
    below = f", below the high watermark {log.high_watermark}" if to < log.high_watermark else ""
    logger.log(
        logging.WARNING if below else logging.INFO,
        "%s-%d parts from its leader's log at %d%s: %d offsets are cut off",
        log.topic,
        log.partition,
        to,
        below,
        log.end - to,
    )
    log.truncate_to(max(to, 0))


def move_into_leader_range(log: PartitionLog, leader_start: int, leader_end: int) -> None:
    """After OFFSET_OUT_OF_RANGE: either the leader's log begins behind our end, because we were away for long, or it ends before it."""
    if log.end < leader_start:
        logger.info("%s-%d begins anew at its leader's start %d", log.topic, log.partition, leader_start)
        log.truncate_fully_and_start_at(leader_start)
    elif log.end > leader_end:
        logger.warning("%s-%d is cut off at its leader's end %d", log.topic, log.partition, leader_end)
        log.truncate_to(leader_end)
