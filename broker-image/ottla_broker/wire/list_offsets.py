"""The request by which clients and followers find the offset of a time, or where a log starts and
ends.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, cast

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2


def build_list_offsets(
    partitions: Iterable[tuple[str, int]], timestamp: int, *, replica: int = -1, leader_epoch: int = -1
) -> Any:
    """A ListOffsetsRequest for the first offset at or after a time (ms), at EARLIEST_TIMESTAMP for
    the log start, or at LATEST_TIMESTAMP for the log end. A consumer (`replica` −1) gets the high
    watermark in place of the log end.

    `partitions`: topic and index.
    """
    # Takes 4 ms, and a broker that follows no other needs no such request.
    from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    return ListOffsetsRequest(
        replica_id=BrokerId(replica),
        isolation_level=i8(0),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(topic),
                partitions=tuple(
                    ListOffsetsPartition(
                        partition_index=cast(i32, index),
                        current_leader_epoch=cast(i32, leader_epoch),
                        timestamp=cast(i64, timestamp),
                    )
                    for _, index in of_topic
                ),
            )
            for topic, of_topic in groupby(sorted(partitions), key=lambda it: it[0])
        ),
    )
