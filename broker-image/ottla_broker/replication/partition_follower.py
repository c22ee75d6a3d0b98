"""A partition's follower: how it processes its leader's responses.

- Records are appended as they are; the high watermark and the log start follow the leader's.
- A follower whose log diverges (rule 2) truncates it to the end of the common prefix, which leader
  epochs determine and the high watermark never does.
- The follower's high watermark does not decrease when a new leader knows a lower one. Only
  truncation decreases it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.metrics import PartitionTraffic
from ottla_broker.replication.pending_acks import PendingAcks
from ottla_broker.replication.waiters import Waiters
from ottla_broker.wire.batch import HEADER, HEADER_SIZE
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_response import FetchResponsePartition

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1


class FollowOutcome(Enum):
    unchanged = auto()  # the next fetch is the same
    advanced = auto()  # the log end has changed
    log_start_raised = auto()  # and a DeleteRecords request may wait at the leader for that
    out_of_range = auto()  # the leader has no such offset
    retriable_error = auto()


@dataclass(slots=True, eq=False, repr=False)
class PartitionFollower:
    """`stepped_down_s`: when this broker ceased to lead the partition, by the loop's clock.
    `_begin_sync`: starts the fsync that flush.messages requires. `_pending_acks`: producers whose
    requests this broker accepted as leader."""

    _log: PartitionLog
    registration: PartitionRecord
    _traffic: PartitionTraffic
    _pending_acks: PendingAcks
    _read_waiters: Waiters
    _begin_sync: Callable[[], None]
    stepped_down_s: float = -inf

    def process(self, data: FetchResponsePartition) -> FollowOutcome:
        """Processes the leader's response. Raises KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE
        (of the records), KAFKA_STORAGE_ERROR."""
        if data.error is not ErrorCode.none:
            is_out_of_range = data.error is ErrorCode.offset_out_of_range
            return FollowOutcome.out_of_range if is_out_of_range else FollowOutcome.retriable_error
        log = self._log
        end, start = log.end, log.start
        if data.diverging is not None:
            truncate_diverging(log, *data.diverging)
            self.on_log_truncated()
            return FollowOutcome.advanced if log.end != end else FollowOutcome.retriable_error
        if len(data.records) >= HEADER_SIZE:
            self._append(data)
        self.update_from_leader(data.high_watermark, data.log_start)
        if log.end != end:
            return FollowOutcome.advanced
        if log.start != start:
            return FollowOutcome.log_start_raised
        # Records that could not be used: the leader does not send them again unasked.
        return FollowOutcome.retriable_error if data.records else FollowOutcome.unchanged

    def _append(self, data: FetchResponsePartition) -> None:
        log = self._log
        fields = HEADER.unpack_from(data.records)
        if fields[0] < log.end <= fields[0] + fields[6] and log.end == log.start:
            # The leader's log starts inside of a batch, which it holds as a whole; so will ours.
            log.truncate_fully_and_start_at(fields[0])
        appended = log.append_as_follower(data.records, leader_epoch=self.registration.leader_epoch)
        self._traffic.replication_in += appended.byte_count

    def update_from_leader(self, high_watermark: int, log_start: int) -> None:
        """Takes over the leader's high watermark as far as this log goes, and its log start."""
        log = self._log
        watermark = min(high_watermark, log.end)
        if watermark > log.high_watermark:
            log.advance_high_watermark(watermark)
            if self._pending_acks:
                self._pending_acks.complete_up_to(watermark)
            if self._read_waiters.waiting:
                self._read_waiters.notify_all()
        if log.start < log_start <= log.high_watermark:
            log.delete_records_before(log_start)
        self._begin_sync()

    def move_into_leader_range(self, leader_start: int, leader_end: int) -> None:
        """Moves the log into the leader's offset range after OFFSET_OUT_OF_RANGE. Raises
        KafkaError: KAFKA_STORAGE_ERROR.
        """
        move_into_leader_range(self._log, leader_start, leader_end)
        self.on_log_truncated()

    def on_log_truncated(self) -> None:
        """Fails the producers whose records are no longer in the log."""
        self._pending_acks.truncate_to(self._log.end, KafkaError(ErrorCode.not_leader_or_follower))


def last_record_epoch(log: PartitionLog) -> int:
    """The leader epoch of the last record; −1 for an empty log, which diverges from none."""
    return log.epochs.epoch_for_offset(log.end - 1) if log.end > log.start else NO_EPOCH


def truncate_diverging(log: PartitionLog, epoch: int, end: int) -> None:
    """Truncates the log where it diverges from the leader's. `epoch`: the leader's largest epoch
    that is not newer than this log's last epoch. `end`: its end offset in the leader's log. If this
    log does not have that epoch, the next fetch may require another truncation.
    """
    _, own_end = log.epochs.end_offset_for(epoch, log.end)
    to = min(end, own_end if own_end >= 0 else log.end, log.end)
    below = f", below the high watermark {log.high_watermark}" if to < log.high_watermark else ""
    logger.log(
        logging.WARNING if below else logging.INFO,
        "%s-%d diverges from its leader's log at offset %d%s: truncating %d offsets",
        log.topic,
        log.partition,
        to,
        below,
        log.end - to,
    )
    log.truncate_to(max(to, 0))


def move_into_leader_range(log: PartitionLog, leader_start: int, leader_end: int) -> None:
    """Repairs a log after OFFSET_OUT_OF_RANGE: it restarts at the leader's log start if it ends
    before that, because this broker was down for long, and is truncated to the leader's log end if
    it ends after that."""
    if log.end < leader_start:
        logger.info("%s-%d restarts at its leader's log start %d", log.topic, log.partition, leader_start)
        log.truncate_fully_and_start_at(leader_start)
    elif log.end > leader_end:
        logger.warning("%s-%d: truncating to its leader's log end %d", log.topic, log.partition, leader_end)
        log.truncate_to(leader_end)
