"""Where a source's log starts and where what it has committed ends, as a consumer asks for it: ListOffsets (2), up to version 7."""

from typing import Final, cast

from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

EARLIEST: Final = -2
LATEST: Final = -1
CONSUMER: Final = BrokerId(-1)


async def fetch_source_offset(channel: Channel, copy: MirroredPartition, which: int) -> int:
    """`which`: EARLIEST or LATEST. KafkaError as the source says; ConnectionError."""
    response: ListOffsetsResponse = await channel.send(
        ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=i8(0),
            topics=(
                ListOffsetsTopic(
                    name=TopicName(copy.source_topic),
                    partitions=(
                        ListOffsetsPartition(partition_index=cast(i32, copy.partition.partition), timestamp=i64(which)),
                    ),
                ),
            ),
        )
    )
    ((answer,),) = [topic.partitions for topic in response.topics]
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code, f"{copy.source_topic}-{copy.partition.partition} at the source")
    return int(answer.offset)
