"""Fetches from one broker of a source, as a consumer does, for the mirrored partitions whose source it leads.

Topics are named by id, so the source itself refuses a new topic of the same name.
"""

import asyncio
import logging
from typing import Final, Protocol

from ottla_broker.mirroring import mirrored_partition
from ottla_broker.mirroring.mirror_config import FetchLimits
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, LastResponse, MirroredPartition
from ottla_broker.replication.fetcher import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Fetcher, FetcherTiming, list_offset
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import CONSUMER, FETCH, TOPIC_IDS_SINCE, FetchRequest
from ottla_broker.wire.fetch_response import FetchResponsePartition

logger = logging.getLogger(__name__)

NEWEST_VERSION: Final = 17
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
TIMEOUT_S: Final = 10.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Home(Protocol):
    """What a fetcher needs of its mirror."""

    @property
    def pace(self) -> FetchLimits: ...
    @property
    def client_id(self) -> str: ...
    @property
    def secured(self) -> ClientSecurity: ...

    def held_back_s(self) -> float:
        """How long the throttle lets nothing more be fetched."""
        ...

    def took(self, size: int) -> None: ...

    def elsewhere(self, copy: MirroredPartition, reason: str) -> None:
        """This broker of the source does not lead it."""
        ...

    def learned(self, copy: MirroredPartition) -> None:
        """`copy.unrecorded_epochs` must be recorded before it is fetched any further."""
        ...

    def parted(self, copy: MirroredPartition) -> None: ...


class SourceFetcher:
    """`last_response`: of this broker of the source."""

    def __init__(self, broker: int, address: tuple[str, int], home: Home) -> None:
        self.broker = broker
        self.address = address
        self.name = f"mirror from {address[0]}:{address[1]}"
        self.client_id = home.client_id
        self.timing = FetcherTiming(TIMEOUT_S, TIMEOUT_S, FIRST_PAUSE_S, MAX_PAUSE_S)
        self.last_response = LastResponse()
        self._home = home
        self._loop = asyncio.get_running_loop()
        self.fetcher: Fetcher[MirroredPartition] = Fetcher(self, pipelined=False)

    def follow(self, copy: MirroredPartition) -> None:
        copy.last_response = self.last_response
        self.fetcher.add(copy)

    def forget(self, copy: MirroredPartition) -> None:
        self.fetcher.remove(copy)

    async def close(self) -> None:
        await self.fetcher.close()

    # --- for the fetcher

    @property
    def max_partition_bytes(self) -> int:
        return self._home.pace.max_partition_bytes

    async def connect(self) -> tuple[Channel, int]:
        channel = await open_channel(*self.address, self.client_id, security=self._home.secured)
        low, high = channel.versions.get(FETCH, (0, -1))
        version = min(high, NEWEST_VERSION)
        if version < max(low, TOPIC_IDS_SINCE):
            channel.close()
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"the source supports Fetch versions {low} to {high}; mirroring needs {TOPIC_IDS_SINCE} (Apache Kafka 3.1)",
            )
        return channel, version

    def next_request(self) -> FetchRequest:
        limits = self._home.pace
        isolation = READ_COMMITTED if limits.reads_committed else READ_UNCOMMITTED
        return FetchRequest(CONSUMER, limits.max_wait_ms, 1, limits.max_bytes, isolation, 0, 0, (), ())

    def send_pause_s(self) -> float:
        return self._home.held_back_s()

    def on_response(self, size: int) -> None:
        self.last_response.received_s = self._loop.time()
        self._home.took(size)

    def on_disconnect(self, reason: Exception) -> None:
        why = str(reason) or "no response in time"
        logger.info("mirroring from broker %d at %s:%d: %s", self.broker, *self.address, why)
        for copy in tuple(self.fetcher.session):
            self.fetcher.remove(copy)
            self._home.elsewhere(copy, why)

    def process(self, copy: MirroredPartition, data: FetchResponsePartition) -> None:
        if not copy.is_leader:
            self.fetcher.remove(copy)
            return
        try:
            outcome = mirrored_partition.process_partition_data(copy, data, self._loop.time())
        except KafkaError as reason:
            logger.warning("%r cannot be mirrored: %s", copy.partition, reason)
            outcome = FetchOutcome.retriable_error
        if outcome is FetchOutcome.out_of_range:
            self.fetcher.session.pause(copy, self._loop.time() + TIMEOUT_S)
            self.fetcher.spawn(self._find_range(copy))
        else:
            self._apply(outcome, copy, data.error)

    def _apply(self, outcome: FetchOutcome, copy: MirroredPartition, code: ErrorCode) -> None:
        session = self.fetcher.session
        match outcome:
            case FetchOutcome.unchanged:
                copy.retry_pause_s = 0.0
            case FetchOutcome.advanced:
                copy.retry_pause_s = 0.0
                session.fetch_next(copy)
            case FetchOutcome.retriable_error:
                session.pause(copy, self._next_retry_s(copy))
            case FetchOutcome.not_leader:
                self.fetcher.remove(copy)
                copy.retry_at_s = self._next_retry_s(copy)  # two brokers of the source may contradict each other
                self._home.elsewhere(copy, f"broker {self.broker} answers {code.name}")
            case FetchOutcome.new_epochs:
                self.fetcher.remove(copy)
                self._home.learned(copy)
            case _:
                self.fetcher.remove(copy)
                self._home.parted(copy)

    def _next_retry_s(self, copy: MirroredPartition) -> float:
        copy.retry_pause_s = min(copy.retry_pause_s * 2 or FIRST_PAUSE_S, MAX_PAUSE_S)
        return self._loop.time() + copy.retry_pause_s

    async def _find_range(self, copy: MirroredPartition) -> None:
        """The source has no such offset: ask where its log starts and ends."""
        channel, position = self.fetcher.channel, copy.position
        assert channel is not None
        topic, index = copy.source_topic, copy.partition.partition
        try:
            async with asyncio.timeout(TIMEOUT_S):
                start = await list_offset(channel, topic, index, EARLIEST_TIMESTAMP, replica=CONSUMER)
                end = await list_offset(channel, topic, index, LATEST_TIMESTAMP, replica=CONSUMER)
            if copy not in self.fetcher.session:
                return
            outcome = FetchOutcome.advanced
            if copy.is_leader and copy.position == position:
                outcome = copy.offset_policy.handle_out_of_range(copy, start, end)
        except KafkaError as reason:
            logger.warning("%r cannot be mirrored: %s", copy.partition, reason)
            outcome = FetchOutcome.retriable_error
        except OSError as reason:
            self.fetcher.disconnect(reason)
            return
        if outcome is FetchOutcome.advanced:
            self.fetcher.session.fetch_now(copy)
        self._apply(outcome, copy, ErrorCode.offset_out_of_range)
        self.fetcher.send_soon()
