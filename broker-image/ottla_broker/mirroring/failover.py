"""Failover of a mirrored partition: it becomes writable at an offset that every replica knows,
without open transactions.

1. Mirroring has ended. The leader waits until all of its in-sync replicas have the mirrored
   records.
2. The leader reports its log end to the controller. Every later leader has all records below it, so
   this is where the partition's own records begin.
3. When the metadata contain the report, the leader writes abort markers for the transactions that
   the source's producers left open, before it accepts the first record of a producer. Every later
   leader does the same.
"""

import asyncio
import logging
from typing import Final

from ottla_broker.event_timeout import wait_for_event
from ottla_broker.log.transaction_markers import build_abort_markers
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring.mirrored_partition import SendReport
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

REPORT_RETRY_PAUSE_S: Final = 0.1
REPLICATION_POLL_S: Final = 0.1  # no waiter is notified when a follower of an empty log reaches its start
LEADER_ACKS: Final = 1


async def report_end_offset(
    partition: Partition, broker_id: int, source_high_watermark: int, send_report: SendReport
) -> None:
    """Reports the end offset of the mirrored records to the controller. Returns when the report is
    committed, when this broker's leader epoch has ended, or when the controller refuses the report
    because the failover was reverted.
    """
    epoch = partition.leader_epoch

    def is_leader() -> bool:
        return partition.is_leader and partition.leader_epoch == epoch

    advanced = asyncio.Event()
    partition.read_waiters.add(advanced.set)
    try:
        while is_leader() and not is_fully_replicated(partition):
            await wait_for_event(advanced, REPLICATION_POLL_S)
            advanced.clear()
    finally:
        partition.read_waiters.remove(advanced.set)
    report = MirrorReport(
        broker_id,
        partition.topic_id,
        partition.partition,
        epoch,
        end=partition.log.end,
        source_end=source_high_watermark,
    )
    while is_leader():
        try:
            await send_report(partition.topic, report)
            return
        except (KafkaError, OSError, TimeoutError) as reason:
            if isinstance(reason, KafkaError) and reason.code is ErrorCode.invalid_request:
                return  # the failover was reverted meanwhile
            logger.info("%r: cannot report the end of the mirrored records to the controller: %s", partition, reason)
        await asyncio.sleep(REPORT_RETRY_PAUSE_S)


def is_fully_replicated(partition: Partition) -> bool:
    """True if all in-sync replicas have every record of the log.

    The high watermark alone does not show this. If the source's log starts after the mirrored
    records, the leader has emptied its log: log start and high watermark are at the new offset
    before any follower's are.
    """
    end = partition.log.end
    return partition.log.high_watermark >= end and partition.leader.followers.least_end(end) >= end


def abort_open_transactions(partition: Partition, end: int, now_ms: int) -> int:
    """Aborts transactions that began below `end` and are still open; returns how many."""
    markers = build_abort_markers(partition.log.producers, now_ms, below=end)
    for marker in markers:
        partition.append_records(marker, acks=LEADER_ACKS, from_client=False)
    if markers:
        logger.warning("%r: aborted %d transactions that were open at the failover", partition, len(markers))
    return len(markers)
