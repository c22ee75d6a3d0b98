"""Calls the share coordinators of share-partitions, on this broker or another, for partition
leaders and group coordinators (Kafka's Persister).

Methods raise KafkaError with the coordinator's error; COORDINATOR_NOT_AVAILABLE when requests have
failed with one of RETRIABLE_ERRORS for RETRY_S.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from ottla_broker.coordination.records import SHARE_STATE_TOPIC, coordinator_partition
from ottla_broker.coordination.share_group_requests import StatePartition
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.share_groups.share_state import SharePartitionKey, ShareState, StateUpdate
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.02
MAX_PAUSE_S: Final = 1.0
RETRIABLE_ERRORS: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.network_exception,
    }
)

T = TypeVar("T")


class ShareStateStore(Protocol):
    """A share coordinator, here or on another broker."""

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None: ...

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState: ...

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None: ...

    async def delete(self, key: SharePartitionKey) -> None: ...

    async def find(self, key: SharePartitionKey) -> ShareState | None: ...


@dataclass(eq=False, repr=False)
class ShareStateClient:
    """`_coordinator`: the share coordinator on this broker. `_send_request` sends a request to the
    broker with this id and returns its response. `_create_topic` creates the topic of this name.
    """

    _node_id: int
    _image: MetadataImage
    _coordinator: ShareStateStore
    _send_request: Callable[[int, Any], Awaitable[Any]]
    _create_topic: Callable[[str], Awaitable[None]]

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state, for the partition's leader. Raises FENCED_LEADER_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION."""
        return await self._send_to_coordinator(key, lambda states: states.read(key, leader_epoch))

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None:
        """Returns when the update is replicated. Raises FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        await self._send_to_coordinator(key, lambda states: states.write(key, update))

    async def find(self, key: SharePartitionKey) -> ShareState | None:
        """The state, without batches if it is from another broker; None for a share-partition that
        was not initialized.
        """
        return await self._send_to_coordinator(key, lambda states: states.find(key))

    async def initialize_state(self, group_id: str, at: StatePartition, state_epoch: int, start_offset: int) -> None:
        """Creates the state of a share-partition. Replaces one of an earlier state epoch, and with
        a `start_offset` also one of the same epoch. Raises FENCED_STATE_EPOCH."""
        key = SharePartitionKey(group_id, *at)
        await self._send_to_coordinator(key, lambda states: states.initialize(key, state_epoch, start_offset))

    async def delete_state(self, group_id: str, at: StatePartition) -> None:
        """Does nothing for a share-partition that has no state."""
        key = SharePartitionKey(group_id, *at)
        await self._send_to_coordinator(key, lambda states: states.delete(key))

    async def _send_to_coordinator(
        self, key: SharePartitionKey, request: Callable[[ShareStateStore], Awaitable[T]]
    ) -> T:
        """Repeats the request while it fails with one of RETRIABLE_ERRORS, for RETRY_S at most."""
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + RETRY_S, FIRST_PAUSE_S
        while True:
            try:
                return await request(await self._find_coordinator(key))
            except KafkaError as reason:
                if reason.code not in RETRIABLE_ERRORS:
                    raise
                if loop.time() >= until_s:
                    logger.warning("share coordinator of %s: %s", key, reason)
                    raise KafkaError(ErrorCode.coordinator_not_available, reason.message) from reason
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    async def _find_coordinator(self, key: SharePartitionKey) -> ShareStateStore:
        """The coordinator, here or remote. Creates its topic if it does not exist. Raises
        COORDINATOR_NOT_AVAILABLE."""
        if SHARE_STATE_TOPIC not in self._image.topics:
            try:
                await self._create_topic(SHARE_STATE_TOPIC)
            except KafkaError as reason:
                raise KafkaError(ErrorCode.coordinator_not_available, reason.message) from reason
        topic = self._image.topics[SHARE_STATE_TOPIC]
        leader = topic.partitions[coordinator_partition(key.coordinator_key, len(topic.partitions))].leader
        if leader == self._node_id:
            return self._coordinator
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.coordinator_not_available, f"{SHARE_STATE_TOPIC} has no leader for {key}")
        # Imported here: a broker that is alone needs no classes of these requests.
        from ottla_broker.share_groups.remote_share_coordinator import RemoteShareCoordinator

        return RemoteShareCoordinator(leader, self._send_request)
