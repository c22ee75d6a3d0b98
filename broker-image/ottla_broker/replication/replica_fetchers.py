"""The fetchers of this broker's follower replicas: one for each leader, and a second one for topics
with `flush.messages=1`, whose records are fsynced before the next request acknowledges them. These
have their own connection; otherwise every partition would wait for the device."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

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
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.replication.fetcher import Fetcher, FetcherTiming, list_offset
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_follower import FollowOutcome, last_record_epoch
from ottla_broker.replication.throttle import Throttle, is_throttled
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponsePartition
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

logger = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
FIRST_PAUSE_S: Final = 0.02
FIRST_TIMEOUT_S: Final = 2.0
"""A connection that a network cut has silenced is replaced long before TCP gives it up; a leader
that is merely slow gets twice the time with each try, up to replica.socket.timeout.ms."""

ConnectionKey = tuple[int, bool]
"""Leader, and whether it is the connection of the topics whose records are fsynced."""


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """See `FetchedPartition`. `epoch`: the leader epoch in which it is fetched. `lag`: records by
    which the leader's high watermark is ahead.
    """

    partition: Partition
    key: tuple[UUID, int] = field(init=False)
    epoch: int = field(init=False)
    lag: int = 0
    requested_offset: int = 0
    named_in: int = 0
    in_session: bool = False
    retry_at_s: float = 0.0
    retry_pause_s: float = 0.0

    def __post_init__(self) -> None:
        self.key = self.partition.topic_id, self.partition.partition
        self.epoch = self.partition.leader_epoch

    def next_fetch(self, max_bytes: int) -> FetchRequestPartition:
        partition, log = self.partition, self.partition.log
        return FetchRequestPartition(
            partition.topic_id,
            partition.partition,
            log.end,
            max_bytes,
            partition.leader_epoch,
            last_record_epoch(log),
            log.start,
        )


@dataclass(eq=False, repr=False)
class ReplicaFetchers:
    """`own_epoch`: epoch of this broker's registration; −1 while it is not registered, when nothing
    is fetched.
    """

    broker_id: int
    image: MetadataImage
    config: Config
    own_epoch: Callable[[], int]
    channels: ChannelBuilder = UNSECURED_CHANNELS

    def __post_init__(self) -> None:
        self._throttle = Throttle(
            lambda: self.config(FOLLOWER_REPLICATION_THROTTLED_RATE), lambda: asyncio.get_running_loop().time()
        )
        self._fetchers: dict[ConnectionKey, ReplicaFetcher] = {}
        self._connections: dict[Partition, ConnectionKey] = {}

    def follow_leader(self, partition: Partition) -> None:
        """Fetches the partition from the leader that its registration names, or from none."""
        key, before = self._connection_key(partition), self._connections.get(partition)
        if before is not None and before != key:
            self.remove_partition(partition)
        if key is not None:
            self._connections[partition] = key
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = ReplicaFetcher(*key, self)
            fetcher.add_partition(partition)

    def remove_partition(self, partition: Partition) -> None:
        key = self._connections.pop(partition, None)
        if key is not None:
            self._fetchers[key].remove_partition(partition)

    def _connection_key(self, partition: Partition) -> ConnectionKey | None:
        leader = partition.registration.leader
        return None if leader in (NO_LEADER, self.broker_id) else (leader, partition.acks_wait_for_sync)

    def on_broker_changed(self, broker: int) -> None:
        """Called when a broker may be back, or when this one has a broker epoch."""
        for (leader, _), fetcher in self._fetchers.items():
            if broker in (leader, self.broker_id):
                fetcher.fetcher.reconnect_now()

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            await fetcher.fetcher.close()
        self._fetchers.clear()
        self._connections.clear()

    def lags(self) -> Iterator[int]:
        """How far each partition is behind its leader's high watermark, in records. Partitions may
        come and go while the result is read."""
        for each in list(self._fetchers.values()):
            for fetched in list(each.fetcher.session):
                yield fetched.lag

    def throttle_time_s(self, partition: Partition) -> float:
        return self._throttle.throttle_time_s() if self._is_throttled(partition) else 0.0

    def record_bytes(self, partition: Partition, size: int) -> None:
        if self._is_throttled(partition):
            self._throttle.record_bytes(size)

    def _is_throttled(self, partition: Partition) -> bool:
        entries = partition.log.config.follower_replication_throttled_replicas
        return (
            is_throttled(entries, partition.partition, self.broker_id)
            and self.broker_id not in partition.registration.isr
        )


class ReplicaFetcher:
    """Fetches from one leader. With `synced`, fetched records are fsynced before the next
    request.
    """

    def __init__(self, leader: int, synced: bool, fetchers: ReplicaFetchers) -> None:
        config = fetchers.config
        self.name = f"fetch from broker {leader}"
        self.client_id = f"broker-{fetchers.broker_id}-fetcher"
        self.max_partition_bytes = config(REPLICA_FETCH_MAX_BYTES)
        self._max_pause_s = max(config(REPLICA_FETCH_BACKOFF_MS) / 1000, FIRST_PAUSE_S)
        max_timeout_s = config(REPLICA_SOCKET_TIMEOUT_MS) / 1000
        self.timing = FetcherTiming(
            min(FIRST_TIMEOUT_S, max_timeout_s), max_timeout_s, FIRST_PAUSE_S, self._max_pause_s
        )
        self._leader = leader
        self._synced = synced
        self._fetchers = fetchers
        self._loop = asyncio.get_running_loop()
        self._broker_epoch = -1  # of this broker, in which the connection was made
        self._syncing = 0  # responses whose records are being fsynced
        self.fetcher: Fetcher[FollowedPartition] = Fetcher(self, pipelined=True)

    def add_partition(self, partition: Partition) -> None:
        """Fetches the partition from now on, or in another leader epoch than before."""
        known = self.fetcher.session.get((partition.topic_id, partition.partition))
        if known is None or known.partition is not partition or known.epoch != partition.leader_epoch:
            self.fetcher.add(FollowedPartition(partition))

    def remove_partition(self, partition: Partition) -> None:
        known = self.fetcher.session.get((partition.topic_id, partition.partition))
        if known is not None and known.partition is partition:
            self.fetcher.remove(known)

    # --- for the fetcher

    async def connect(self) -> tuple[Channel, int]:
        self._syncing = 0
        self._broker_epoch = self._fetchers.own_epoch()
        if self._broker_epoch < 0:
            raise KafkaError(ErrorCode.broker_not_available, "this broker is not registered yet")
        registered = self._fetchers.image.brokers.get(self._leader)
        listener = self._fetchers.config.inter_broker_listener
        endpoint = None if registered is None else registered.endpoints.get(listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {self._leader} is not registered")
        return await self._fetchers.channels.open_channel(endpoint.host, endpoint.port, self.client_id), FETCH_VERSION

    def next_request(self) -> FetchRequest:
        if self._broker_epoch != self._fetchers.own_epoch():
            raise ConnectionAbortedError("this broker has registered again")  # the leader knows an earlier incarnation
        config = self._fetchers.config
        return FetchRequest(
            self._fetchers.broker_id,
            config(REPLICA_FETCH_WAIT_MAX_MS),
            config(REPLICA_FETCH_MIN_BYTES),
            config(REPLICA_FETCH_RESPONSE_MAX_BYTES),
            0,
            0,
            0,
            (),
            (),
            None,
            self._broker_epoch,
        )

    def send_pause_s(self) -> float | None:
        return None if self._syncing else 0.0

    def on_response(self, size: int) -> None:
        pass

    def on_disconnect(self, reason: Exception) -> None:
        if self._fetchers.own_epoch() >= 0:  # otherwise this broker is still starting
            logger.info("fetching from broker %d failed, retrying: %s", self._leader, reason)

    def process(self, followed: FollowedPartition, data: FetchResponsePartition) -> None:
        partition, session = followed.partition, self.fetcher.session
        if data.records and followed.requested_offset != partition.log.end:
            return  # an earlier response has brought them
        try:
            outcome = partition.follower.process(data)
        except KafkaError as reason:
            logger.warning("%r cannot be copied from broker %d: %s", partition, self._leader, reason)
            self._pause(followed, self._max_pause_s)
            return
        if outcome is FollowOutcome.retriable_error:
            self._pause(followed, self._next_pause_s(followed, data.error))
            return
        if outcome is FollowOutcome.out_of_range:
            self._pause(followed, self._max_pause_s)
            self.fetcher.spawn(self._find_range(followed))
            return
        followed.retry_pause_s = 0.0
        followed.lag = max(data.high_watermark - partition.log.end, 0)
        if outcome is FollowOutcome.log_start_raised:
            session.fetch_now(followed)
        elif outcome is FollowOutcome.advanced:
            self._fetchers.record_bytes(partition, len(data.records))
            if self._synced and partition.log.flush.flushed_offset < partition.log.end:
                self._syncing += 1
                self.fetcher.spawn(self._sync(followed))
            else:
                self._fetch_next(followed)

    # --- what comes of a response

    def _fetch_next(self, followed: FollowedPartition) -> None:
        pause_s = self._fetchers.throttle_time_s(followed.partition)
        if pause_s > 0:
            self.fetcher.session.pause(followed, self._loop.time() + pause_s)
        else:
            self.fetcher.session.fetch_next(followed)

    def _next_pause_s(self, followed: FollowedPartition, code: ErrorCode) -> float:
        """Seconds until the next retry. The first retries come soon, because the metadata of two
        brokers seldom differ for long.
        """
        if followed.retry_pause_s == 0.0:
            logger.info("%r: broker %d answers %s", followed.partition, self._leader, code.name)
        if code is ErrorCode.kafka_storage_error:
            return self._max_pause_s
        return min(followed.retry_pause_s * 2 or FIRST_PAUSE_S, self._max_pause_s)

    def _pause(self, followed: FollowedPartition, pause_s: float) -> None:
        followed.retry_pause_s = pause_s
        self.fetcher.session.pause(followed, self._loop.time() + pause_s)

    async def _sync(self, followed: FollowedPartition) -> None:
        """Syncs the log to disk; only then may the leader count on its records."""
        log = followed.partition.log
        try:
            await log.wait_until_synced(log.end)
        except KafkaError:
            self._pause(followed, self._max_pause_s)
        else:
            self._fetch_next(followed)
        self._syncing -= 1
        self.fetcher.send()

    async def _find_range(self, followed: FollowedPartition) -> None:
        """Asks where the leader's log starts and ends, because it does not have the next offset,
        and moves the log here into that range.
        """
        channel, partition, epoch = self.fetcher.channel, followed.partition, followed.epoch
        own_id = self._fetchers.broker_id
        assert channel is not None

        async def offset(timestamp: int) -> int:
            return await list_offset(
                channel, partition.topic, partition.partition, timestamp, replica=own_id, leader_epoch=epoch
            )

        try:
            start, end = await offset(EARLIEST_TIMESTAMP), await offset(LATEST_TIMESTAMP)
            if followed not in self.fetcher.session or epoch != partition.leader_epoch:
                return
            partition.follower.move_into_leader_range(start, end)
        except (OSError, KafkaError) as reason:
            logger.warning("%r: cannot continue in its leader's offset range: %s", partition, reason)
            return
        self.fetcher.session.fetch_now(followed)
        self.fetcher.send_soon()
