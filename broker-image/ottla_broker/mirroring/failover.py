"""A copy that fails over is opened for writing by whoever leads it: at an offset that everybody knows, and without transactions that nobody could end.

1. Nothing is copied any more; the leader waits until all of its in-sync replicas have what was.
2. It reports where the log ends then. Whoever leads later has all of that, so this is where our own records begin, whatever happens.
3. When the metadata say so, the leader of that moment writes abort markers for the transactions of the source's producers that are open in the
   log, before it takes the first record of a producer; and so does every later one that finds some.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ottla_broker.log.transaction_markers import build_abort_markers
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PAUSE_S = 0.1
LEADER_ONLY = 1  # acks

SendReport = Callable[[str, MirrorReport], Awaitable[None]]


async def report_end_offset(partition: Partition, me: int, source_end: int, tell: SendReport) -> None:
    """Until it is committed, or somebody else leads."""
    epoch = partition.leader_epoch

    def leads() -> bool:
        return partition.is_leader and partition.leader_epoch == epoch

    changed = asyncio.Event()
    partition.read_waiters.add(changed.set)
    try:
        while leads() and not is_fully_replicated(partition):
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    PAUSE_S
                ):  # a follower that only comes to where an empty log begins wakes nobody
                    await changed.wait()
            changed.clear()
    finally:
        partition.read_waiters.remove(changed.set)
    end = partition.log.end
    report = MirrorReport(me, partition.topic_id, partition.partition, epoch, end=end, source_end=source_end)
    while leads():
        try:
            await tell(partition.topic, report)
            return
        except (KafkaError, OSError, TimeoutError) as reason:
            if isinstance(reason, KafkaError) and reason.code is ErrorCode.invalid_request:
                return  # it became a copy again meanwhile
            logger.info("%r: the controller cannot be told where it ends: %s", partition, reason)
        await asyncio.sleep(PAUSE_S)


def is_fully_replicated(partition: Partition) -> bool:
    """Whether all in-sync replicas have all that is here. The high watermark alone does not say so: where the source's log begins
    behind what was copied, the copy begins anew there, and its high watermark too, before a follower has heard of that."""
    end = partition.log.end
    return partition.log.high_watermark >= end and partition.followers.least_end(end) >= end


def abort_open_transactions(partition: Partition, end: int, now_ms: int) -> int:
    """Ends what the source's producers have begun below `end` and nobody has ended; how many."""
    markers = build_abort_markers(partition.log.producers, now_ms, below=end)
    for marker in markers:
        partition.append_records(marker, acks=LEADER_ONLY, from_client=False)
    if markers:
        logger.warning("%r: %d transactions that were open at the failover are aborted", partition, len(markers))
    return len(markers)
