"""What Apache Kafka has written in a partition's folder becomes a log of ours.

- Transactions that are open there are aborted: their coordinator stayed behind.
"""

import logging
from typing import TYPE_CHECKING

from ottla_broker.log.markers import abort_markers

if TYPE_CHECKING:
    from ottla_broker.log.partition_log import PartitionLog

log = logging.getLogger(__name__)


async def take_over(foreign: "PartitionLog", now_ms: int) -> None:
    """Nothing of it is lost from here on. KafkaError: KAFKA_STORAGE_ERROR."""
    markers = abort_markers(foreign.producers, now_ms)
    for marker in markers:
        epoch = max(foreign.epochs.latest(), 0)
        foreign.append_as_leader(marker, leader_epoch=epoch, now_ms=now_ms, from_client=False)
    if markers:
        log.warning("%s-%d: %d transactions that were open are aborted", foreign.topic, foreign.partition, len(markers))
    if foreign.failed is None and not foreign.flush.clean:
        await foreign.flush.checkpoint()
