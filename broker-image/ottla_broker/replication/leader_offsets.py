"""Where a leader's log starts and ends, as a follower asks for it: ListOffsets (2), version 7."""

from typing import Final, cast

from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from ottla_broker.replication.partition import Partition
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

EARLIEST: Final = -2
LATEST: Final = -1


async def leader_offset(channel: Channel, me: int, partition: Partition, which: int) -> int:
    """`which`: EARLIEST or LATEST. KafkaError as the leader says; ConnectionError."""
    response: ListOffsetsResponse = await channel.send(
        ListOffsetsRequest(
            replica_id=BrokerId(me),
            isolation_level=i8(0),
            topics=(
                ListOffsetsTopic(
                    name=TopicName(partition.topic),
                    partitions=(
                        ListOffsetsPartition(
                            partition_index=cast(i32, partition.partition),
                            current_leader_epoch=cast(i32, partition.leader_epoch),
                            timestamp=i64(which),
                        ),
                    ),
                ),
            ),
        )
    )
    ((answer,),) = [topic.partitions for topic in response.topics]
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code)
    return int(answer.offset)
