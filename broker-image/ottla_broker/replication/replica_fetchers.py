"""All that this broker copies: which partitions it follows, where, and how fast it may.

One fetcher per leader, and a second one for topics whose acks wait for a sync (`fetcher`).
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla_broker.config import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    REPLICA_FETCH_BACKOFF_MS,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_MIN_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    REPLICA_FETCH_WAIT_MAX_MS,
    REPLICA_SOCKET_TIMEOUT_MS,
    Config,
)
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import NO_LEADER, Endpoint
from ottla_broker.replication.fetcher import Fetcher, Pace
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.throttle import Throttle, is_throttled

if TYPE_CHECKING:
    from ottla_broker.replication.fetcher import Home

Place = tuple[int, bool]  # leader, and whether it is the connection of synced topics


class ReplicaFetchers:
    """`broker_epoch`: of this broker's registration, −1 without one; nothing is fetched then."""

    def __init__(self, me: int, image: MetadataImage, config: Config, broker_epoch: Callable[[], int]) -> None:
        self.me = me
        self.broker_epoch = broker_epoch
        self._image = image
        self._listener = config.inter_broker_listener
        self.pace = Pace(
            config(REPLICA_FETCH_WAIT_MAX_MS),
            config(REPLICA_FETCH_MIN_BYTES),
            config(REPLICA_FETCH_MAX_BYTES),
            config(REPLICA_FETCH_RESPONSE_MAX_BYTES),
            config(REPLICA_FETCH_BACKOFF_MS),
            config(REPLICA_SOCKET_TIMEOUT_MS),
        )
        self._throttle = Throttle(lambda: config(FOLLOWER_REPLICATION_THROTTLED_RATE), _now_s)
        self._fetchers: dict[Place, Fetcher] = {}
        self._places: dict[Partition, Place] = {}

    # --- what is followed

    def follow_leader(self, partition: Partition) -> None:
        """Looks at the partition's state, and fetches it from where that says."""
        place = self._connection_key(partition)
        before = self._places.get(partition)
        if before is not None and before != place:
            self.remove_partition(partition)
        if place is not None:
            self._places[partition] = place
            fetcher = self._fetchers.get(place)
            if fetcher is None:
                home: Home = self
                fetcher = self._fetchers[place] = Fetcher(*place, home)
            fetcher.follow(partition)

    def remove_partition(self, partition: Partition) -> None:
        place = self._places.pop(partition, None)
        if place is not None:
            self._fetchers[place].forget(partition)

    def _connection_key(self, partition: Partition) -> Place | None:
        leader = partition.registration.leader
        if leader in (NO_LEADER, self.me):
            return None
        return leader, partition.acks_wait_for_sync

    def on_broker_changed(self, broker: int) -> None:
        """The metadata say something new of a broker: it may be back, or be this one, which had no epoch."""
        for (leader, _), fetcher in self._fetchers.items():
            if broker in (leader, self.me):
                fetcher.try_again()

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            await fetcher.close()
        self._fetchers.clear()
        self._places.clear()

    @property
    def max_lag(self) -> int:
        """Records by which the partition that is furthest behind its leader's high watermark is behind it."""
        return max(
            (one.lag for fetcher in self._fetchers.values() for one in fetcher.session.followed.values()), default=0
        )

    # --- for fetchers

    def address_of(self, broker: int) -> Endpoint | None:
        registered = self._image.brokers.get(broker)
        return None if registered is None else registered.endpoints.get(self._listener)

    def held_back_s(self, partition: Partition) -> float:
        return self._throttle.throttle_time_s() if self._is_throttled(partition) else 0.0

    def took(self, partition: Partition, size: int) -> None:
        if self._is_throttled(partition):
            self._throttle.record_bytes(size)

    def _is_throttled(self, partition: Partition) -> bool:
        entries = partition.log.config.follower_replication_throttled_replicas
        return is_throttled(entries, partition.partition, self.me) and self.me not in partition.registration.isr


def _now_s() -> float:
    return asyncio.get_running_loop().time()
