"""The lag of a share group in a partition: the number of records at or above its start offset that
are neither acknowledged nor archived.
"""

from typing import Any, Final

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.replication.partitions import Partitions
from ottla_broker.share_groups.share_groups import ShareGroups
from ottla_broker.share_groups.share_state import NO_START_OFFSET, ShareState
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP, build_list_offsets

UNKNOWN_LAG: Final = -1


async def share_lag(
    groups: ShareGroups, partitions: Partitions, image: MetadataImage, topic: str, partition: int, state: ShareState
) -> int:
    """The lag; UNKNOWN_LAG while the group has no start offset in the partition, or while the
    number of acknowledged and archived records or the end of the log is unknown."""
    if state.start_offset == NO_START_OFFSET or state.delivery_complete_count < 0:
        return UNKNOWN_LAG
    end = await _find_end(groups, partitions, image, topic, partition)
    return UNKNOWN_LAG if end is None else max(0, end - state.start_offset - state.delivery_complete_count)


async def _find_end(
    groups: ShareGroups, partitions: Partitions, image: MetadataImage, topic: str, partition: int
) -> int | None:
    hosted = partitions.get(topic, partition)
    if hosted is not None and hosted.is_leader:
        return hosted.log.high_watermark
    topic_image = image.topics.get(topic)
    leader = NO_LEADER if topic_image is None else topic_image.partitions[partition].leader
    if leader == NO_LEADER:
        return None
    try:
        response: Any = await groups.connections.send(
            leader, build_list_offsets([(topic, partition)], LATEST_TIMESTAMP)
        )
    except (OSError, KafkaError):
        return None
    result = response.topics[0].partitions[0]
    return int(result.offset) if result.error_code is ErrorCode.none else None
