"""The share coordinator of a broker (KIP-932): finds the shard that keeps a share-partition's
state, and runs the requests of group coordinators and partition leaders on it.

Methods raise KafkaError: NOT_COORDINATOR when another broker leads the partition of
`__share_group_state`, when the topic does not exist, or when this broker has no session with the
controller; COORDINATOR_LOAD_IN_PROGRESS while the partition loads; COORDINATOR_NOT_AVAILABLE when
it could not be loaded or written; and those of `ShareStateShard`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.coordination.loading import load_shard, unload_shard
from ottla_broker.coordination.records import SHARE_STATE_TOPIC, coordinator_partition
from ottla_broker.runtime import Runtime
from ottla_broker.share_groups.share_group_config import ShareCoordinatorConfig
from ottla_broker.share_groups.share_state import SharePartitionKey, ShareState, StateUpdate
from ottla_broker.share_groups.share_state_shard import PrunableJournal, ShareStateShard
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class ShareCoordinator:
    """`_partition_count` returns the number of partitions of `__share_group_state`, 0 while it does
    not exist. No request is served while `_is_in_session` returns False."""

    _runtime: Runtime
    config: ShareCoordinatorConfig
    _partition_count: Callable[[], int]
    _is_in_session: Callable[[], bool]
    _shards: dict[int, ShareStateShard] = field(default_factory=dict)
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    _is_pruning: bool = False

    async def load(self, journal: PrunableJournal) -> None:
        """Called when this broker begins to lead the journal's partition. Returns when the
        partition's states are served, or when loading has failed."""
        if not self._is_pruning:
            self._is_pruning = True
            self._tasks.start(self._prune_periodically())
        shard = ShareStateShard(journal, self._runtime, self.config)
        await load_shard(self._shards, shard, journal, self._loading)

    def unload(self, partition: int) -> None:
        """Called when this broker no longer leads the partition."""
        unload_shard(self._shards, partition)

    def close(self) -> None:
        self._tasks.cancel_soon()
        for partition in list(self._shards):
            self.unload(partition)

    def partition_of(self, key: SharePartitionKey) -> int:
        """The partition of `__share_group_state` that keeps this share-partition's state. Raises
        COORDINATOR_NOT_AVAILABLE before the topic exists."""
        if (count := self._partition_count()) == 0:
            raise KafkaError(ErrorCode.coordinator_not_available, f"{SHARE_STATE_TOPIC} does not exist yet")
        return coordinator_partition(key.coordinator_key, count)

    def _shard_of(self, key: SharePartitionKey) -> ShareStateShard:
        shard = self._shards.get(self.partition_of(key)) if self._partition_count() else None
        if shard is None or not self._is_in_session():
            raise KafkaError(
                ErrorCode.not_coordinator,
                f"this broker does not lead the partition of {SHARE_STATE_TOPIC}, or has no controller session",
            )
        shard.check_serving()
        return shard

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """This and the following methods are described at `ShareStateShard`."""
        await self._shard_of(key).initialize(key, state_epoch, start_offset)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        return await self._shard_of(key).read(key, leader_epoch)

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None:
        await self._shard_of(key).write(key, update)

    async def delete(self, key: SharePartitionKey) -> None:
        await self._shard_of(key).delete(key)

    async def find(self, key: SharePartitionKey) -> ShareState | None:
        """The state, for readers other than the partition's leader; None if the share-partition
        was not initialized."""
        return self._shard_of(key).find(key)

    async def _prune_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.config.prune_interval_ms / 1000)
            for shard in list(self._shards.values()):
                try:
                    await shard.prune()
                except KafkaError as reason:
                    logger.info("%s-%d could not be pruned: %s", SHARE_STATE_TOPIC, shard.partition, reason)
