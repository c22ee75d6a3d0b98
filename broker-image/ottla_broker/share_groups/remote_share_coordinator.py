"""A share coordinator on another broker, called with the requests InitializeShareGroupState,
ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and ReadShareGroupStateSummary
(KIP-932).

Its methods are those of `ShareCoordinator`, but the states that they return have only the fields of
the responses: `read` returns no leader epoch and no count of complete deliveries, `find` no
batches. Methods raise KafkaError with the response's error; NETWORK_EXCEPTION when there is no
response."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from kio.schema.delete_share_group_state.v0 import request as delete_v0
from kio.schema.initialize_share_group_state.v0 import request as initialize_v0
from kio.schema.read_share_group_state.v0 import request as read_v0
from kio.schema.read_share_group_state_summary.v1 import request as summary_v1
from kio.schema.write_share_group_state.v1 import request as write_v1
from kio.static.primitive import i8, i16, i32, i64

from ottla_broker.share_groups.share_state import (
    NO_START_OFFSET,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateUpdate,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


class RemoteShareCoordinator:
    def __init__(self, broker: int, send_request: Callable[[int, Any], Awaitable[Any]]) -> None:
        self._broker = broker
        self._send_request = send_request

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        data = initialize_v0.PartitionData(
            partition=cast(i32, key.partition), state_epoch=cast(i32, state_epoch), start_offset=cast(i64, start_offset)
        )
        topic = initialize_v0.InitializeStateData(topic_id=key.topic_id, partitions=(data,))
        await self._send(initialize_v0.InitializeShareGroupStateRequest(group_id=key.group_id, topics=(topic,)))

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        data = read_v0.PartitionData(partition=cast(i32, key.partition), leader_epoch=cast(i32, leader_epoch))
        topic = read_v0.ReadStateData(topic_id=key.topic_id, partitions=(data,))
        found = await self._send(read_v0.ReadShareGroupStateRequest(group_id=key.group_id, topics=(topic,)))
        return ShareState(
            state_epoch=found.state_epoch,
            start_offset=found.start_offset,
            batches=tuple(
                StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                for one in found.state_batches
            ),
        )

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None:
        data = write_v1.PartitionData(
            partition=cast(i32, key.partition),
            state_epoch=cast(i32, update.state_epoch),
            leader_epoch=cast(i32, update.leader_epoch),
            start_offset=cast(i64, update.start_offset),
            delivery_complete_count=cast(i32, update.delivery_complete_count),
            state_batches=tuple(
                write_v1.StateBatch(
                    first_offset=cast(i64, one.first_offset),
                    last_offset=cast(i64, one.last_offset),
                    delivery_state=cast(i8, int(one.delivery_state)),
                    delivery_count=cast(i16, one.delivery_count),
                )
                for one in update.batches
            ),
        )
        topic = write_v1.WriteStateData(topic_id=key.topic_id, partitions=(data,))
        await self._send(write_v1.WriteShareGroupStateRequest(group_id=key.group_id, topics=(topic,)))

    async def delete(self, key: SharePartitionKey) -> None:
        data = delete_v0.PartitionData(partition=cast(i32, key.partition))
        topic = delete_v0.DeleteStateData(topic_id=key.topic_id, partitions=(data,))
        await self._send(delete_v0.DeleteShareGroupStateRequest(group_id=key.group_id, topics=(topic,)))

    async def find(self, key: SharePartitionKey) -> ShareState | None:
        data = summary_v1.PartitionData(partition=cast(i32, key.partition), leader_epoch=i32(-1))
        topic = summary_v1.ReadStateSummaryData(topic_id=key.topic_id, partitions=(data,))
        found = await self._send(summary_v1.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=(topic,)))
        if found.leader_epoch < 0 and found.start_offset == NO_START_OFFSET:
            return None
        return ShareState(
            state_epoch=found.state_epoch,
            leader_epoch=found.leader_epoch,
            start_offset=found.start_offset,
            delivery_complete_count=found.delivery_complete_count,
        )

    async def _send(self, request: Any) -> Any:
        """Sends the request and returns the response's only partition."""
        try:
            response = await self._send_request(self._broker, request)
        except OSError as error:
            message = f"broker {self._broker}, a share coordinator, has not answered: {error}"
            raise KafkaError(ErrorCode.network_exception, message) from error
        [topic] = response.results
        [partition] = topic.partitions
        if partition.error_code is not ErrorCode.none:
            raise KafkaError(partition.error_code, partition.error_message)
        return partition
