"""Fetches from one broker of a source cluster, as a consumer does, for the mirrored partitions
whose source it leads.

Topics are named by id, so the source rejects requests for a topic that was deleted and created
again.
"""

import asyncio
import logging
from typing import Final, Protocol

from ottla_broker.mirroring import mirrored_partition
from ottla_broker.mirroring.mirror_config import MirrorConfig
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, LastResponse, MirroredPartition
from ottla_broker.replication.fetcher import Fetcher, FetcherTiming, list_offset
from ottla_broker.replication.throttle import Throttle
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import CONSUMER, FETCH, TOPIC_IDS_SINCE, FetchRequest
from ottla_broker.wire.fetch_response import FetchResponsePartition
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

logger = logging.getLogger(__name__)

NEWEST_VERSION: Final = 17
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
TIMEOUT_S: Final = 10.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class FetcherMirror(Protocol):
    """The mirror that a fetcher works for."""

    config: MirrorConfig
    throttle: Throttle

    @property
    def client_id(self) -> str: ...

    def reassign_partition(self, mirrored: MirroredPartition) -> None:
        """Called when another broker of the source leads the partition, and when the connection is
        lost.
        """

    def record_epochs(self, mirrored: MirroredPartition) -> None:
        """Records `mirrored.unrecorded_epochs` in the metadata, before the partition is fetched any
        further.
        """

    def stop_partition(self, mirrored: MirroredPartition) -> None:
        """Called when the source has diverged."""


class SourceFetcher:
    """Fetches the partitions that `broker`, at `address`, leads at the source. `last_response` is
    that broker's.
    """

    def __init__(self, broker: int, address: tuple[str, int], mirror: FetcherMirror) -> None:
        self.broker = broker
        self.address = address
        self.name = f"mirror from {address[0]}:{address[1]}"
        self.client_id = mirror.client_id
        self.timing = FetcherTiming(TIMEOUT_S, TIMEOUT_S, FIRST_PAUSE_S, MAX_PAUSE_S)
        self.last_response = LastResponse()
        self._mirror = mirror
        self._loop = asyncio.get_running_loop()
        self.fetcher: Fetcher[MirroredPartition] = Fetcher(self, pipelined=False)

    def add_partition(self, mirrored: MirroredPartition) -> None:
        mirrored.last_response = self.last_response
        self.fetcher.add(mirrored)

    def remove_partition(self, mirrored: MirroredPartition) -> None:
        self.fetcher.remove(mirrored)

    async def close(self) -> None:
        await self.fetcher.close()

    # --- for the fetcher

    @property
    def max_partition_bytes(self) -> int:
        return self._mirror.config.fetch_limits.max_partition_bytes

    async def connect(self) -> tuple[Channel, int]:
        """A connection to the source's broker and the version of Fetch to use. Raises OSError,
        KafkaError.
        """
        channel = await open_channel(*self.address, self.client_id, security=self._mirror.config.security)
        low, high = channel.versions.get(FETCH, (0, -1))
        version = min(high, NEWEST_VERSION)
        if version < max(low, TOPIC_IDS_SINCE):
            channel.close()
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"the source supports Fetch versions {low} to {high}; mirroring needs {TOPIC_IDS_SINCE}"
                " (Apache Kafka 3.1)",
            )
        return channel, version

    def next_request(self) -> FetchRequest:
        limits = self._mirror.config.fetch_limits
        isolation = READ_COMMITTED if limits.reads_committed else READ_UNCOMMITTED
        return FetchRequest(CONSUMER, limits.max_wait_ms, 1, limits.max_bytes, isolation, 0, 0, (), ())

    def send_pause_s(self) -> float:
        return self._mirror.throttle.throttle_time_s()

    def on_response(self, size: int) -> None:
        self.last_response.received_s = self._loop.time()
        self._mirror.throttle.record_bytes(size)

    def on_disconnect(self, reason: Exception) -> None:
        why = str(reason) or "no response in time"
        logger.info("disconnected from source broker %d at %s:%d, retrying: %s", self.broker, *self.address, why)
        for mirrored in tuple(self.fetcher.session):
            self.fetcher.remove(mirrored)
            self._mirror.reassign_partition(mirrored)

    def process(self, mirrored: MirroredPartition, data: FetchResponsePartition) -> None:
        if not mirrored.is_leader:
            self.fetcher.remove(mirrored)
            return
        try:
            outcome = mirrored_partition.process_partition_data(mirrored, data, self._loop.time())
        except KafkaError as reason:
            logger.warning("%r: mirroring failed, retrying: %s", mirrored.partition, reason)
            outcome = FetchOutcome.retriable_error
        if outcome is FetchOutcome.out_of_range:
            self.fetcher.session.pause(mirrored, self._loop.time() + TIMEOUT_S)
            self.fetcher.spawn(self._find_range(mirrored))
        else:
            self._apply(outcome, mirrored)

    def _apply(self, outcome: FetchOutcome, mirrored: MirroredPartition) -> None:
        """Pauses or removes the partition, or fetches it again, by the outcome of a fetch."""
        session = self.fetcher.session
        match outcome:
            case FetchOutcome.unchanged:
                mirrored.retry_pause_s = 0.0
            case FetchOutcome.advanced:
                mirrored.retry_pause_s = 0.0
                session.fetch_next(mirrored)
            case FetchOutcome.retriable_error:
                session.pause(mirrored, self._next_retry_s(mirrored))
            case FetchOutcome.not_leader:
                self.fetcher.remove(mirrored)
                # Two brokers of the source may contradict each other.
                mirrored.retry_at_s = self._next_retry_s(mirrored)
                self._mirror.reassign_partition(mirrored)
            case FetchOutcome.new_epochs:
                self.fetcher.remove(mirrored)
                self._mirror.record_epochs(mirrored)
            case _:
                self.fetcher.remove(mirrored)
                self._mirror.stop_partition(mirrored)

    def _next_retry_s(self, mirrored: MirroredPartition) -> float:
        mirrored.retry_pause_s = min(mirrored.retry_pause_s * 2 or FIRST_PAUSE_S, MAX_PAUSE_S)
        return self._loop.time() + mirrored.retry_pause_s

    async def _find_range(self, mirrored: MirroredPartition) -> None:
        """Asks where the source's log starts and ends, because it does not have the offset."""
        channel, position = self.fetcher.channel, mirrored.position
        assert channel is not None
        topic, index = mirrored.source_topic, mirrored.partition.partition
        try:
            async with asyncio.timeout(TIMEOUT_S):
                start = await list_offset(channel, topic, index, EARLIEST_TIMESTAMP, replica=CONSUMER)
                end = await list_offset(channel, topic, index, LATEST_TIMESTAMP, replica=CONSUMER)
            if mirrored not in self.fetcher.session:
                return
            outcome = FetchOutcome.advanced
            if mirrored.is_leader and mirrored.position == position:
                outcome = mirrored.offset_policy.handle_out_of_range(mirrored, start, end)
        except KafkaError as reason:
            logger.warning("%r: mirroring failed, retrying: %s", mirrored.partition, reason)
            outcome = FetchOutcome.retriable_error
        except OSError as reason:
            self.fetcher.disconnect(reason)
            return
        if outcome is FetchOutcome.advanced:
            self.fetcher.session.fetch_now(mirrored)
        self._apply(outcome, mirrored)
        self.fetcher.send_soon()
