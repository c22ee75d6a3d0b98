"""Copying the metadata log from another broker: ask, cut off what is not there, append what is, bring it to the device, and so on.

The position that a step asks from is on this broker's device: to its leader, asking is acknowledging.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from uuid import UUID

from ottla_broker.metadata import snapshot_generator
from ottla_broker.metadata.metadata_fetch import MetadataFetchRequest, MetadataFetchResponse, truncation_offset
from ottla_broker.metadata.metadata_log import CommittedLogDiverged, MetadataLog
from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.metadata.register import RegisterValue
from ottla_broker.metadata.register.steps import address_of
from ottla_broker.runtime import Runtime
from ottla_broker.wire.channel import Channel, open_channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 1.0
RESPONSE_TIMEOUT_S = 2.0  # beyond the time that an answer may wait for news
RETRY_PAUSE_S = 0.1


class MetadataLogFetcher:
    """Copies into `log`. `me`, `directory`: this broker and its log directory; `cluster_id`: what both sides must belong to, once known."""

    def __init__(self, log: MetadataLog, me: int, directory: UUID, runtime: Runtime) -> None:
        self.log = log
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self.last_response_s = 0.0  # when another broker last had an answer, by the loop's clock
        self.client_id = f"ottla-quorum-{me}"
        self.cluster_id: str | None = None
        self._me = me
        self._directory = directory

    async def fetch_once(self, channel: Channel, epoch: int, max_wait_ms: int = 0) -> MetadataFetchResponse:
        """One question to a broker in `epoch`, and what follows from its answer; the answer. What is committed is applied.

        KafkaError: what the other side says, what the log says (KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, Parted). ConnectionError, TimeoutError.
        """
        from ottla_broker.metadata.fetch_messages import (  # a broker that is alone needs none of it
            build_fetch_request,
            parse_fetch_response,
        )

        log = self.log
        position = await log.wait_until_durable()
        ask = MetadataFetchRequest(
            self._me,
            self._directory,
            epoch,
            position,
            log.high_watermark,
            max_wait_ms=max_wait_ms,
            cluster_id=self.cluster_id,
        )
        async with asyncio.timeout(max_wait_ms / 1000 + RESPONSE_TIMEOUT_S):
            told = parse_fetch_response(await channel.send(build_fetch_request(ask)))
        if told.error is not ErrorCode.none:
            raise KafkaError(told.error, f"the leader of the metadata log answers {told.error.name}")
        self.last_response_s = self._loop.time()
        if told.snapshot_id is not None:
            await self._fetch_snapshot(channel, epoch, told.snapshot_id)
        elif told.diverging_epoch is not None:
            log.truncate_to(truncation_offset(log.log.epochs, log.log.end, told.diverging_epoch))
            if log.log.end >= position.offset:
                raise CommittedLogDiverged(
                    ErrorCode.unknown_server_error, f"{told.diverging_epoch} parts from nothing of {position}"
                )
        elif told.records:
            log.append_as_follower(told.records, epoch)
        if told.diverging_epoch is None and told.high_watermark >= 0:
            log.advance_high_watermark(told.high_watermark)
        return told

    async def _fetch_snapshot(self, channel: Channel, epoch: int, snapshot: EpochAndOffset) -> None:
        """This broker's log ends before the other's begins, or parts from what was before that."""
        from ottla_broker.metadata.snapshot_fetching import fetch_snapshot  # as seldom as it is needed

        log = self.log
        try:
            log.snapshots.create_partial(snapshot)
            async for data in fetch_snapshot(channel, self._me, epoch, snapshot):
                self.last_response_s = self._loop.time()
                log.snapshots.append_partial(snapshot, data)
            await self._runtime.run_in_thread(log.snapshots.complete_partial, snapshot)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise KafkaError(ErrorCode.kafka_storage_error, f"a snapshot cannot be kept: {error}") from error
        snapshot_generator.install_snapshot(log, snapshot)


class FollowerState:
    """Follows the leader that `value` names. `gone`: its port refuses connections, of which `news` is called; `told` is called after each answer."""

    def __init__(
        self,
        copying: MetadataLogFetcher,
        value: RegisterValue,
        wait_ms: int,
        news: Callable[[], None],
        told: Callable[[MetadataFetchResponse], None],
    ) -> None:
        self._fetcher = copying
        self._value = value
        self._wait_ms = wait_ms
        self._on_change = news
        self._on_response = told
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()
        self.is_leader_down = False

    @property
    def last_response_s(self) -> float:
        """When the leader last had an answer, by the loop's clock."""
        return max(self._started_s, self._fetcher.last_response_s)

    async def run(self) -> None:
        """Until cancelled. KafkaError when this broker's own log fails or cannot follow."""
        address = address_of(self._value, self._value.leader)
        tried_at = self._loop.time() - RETRY_PAUSE_S
        while True:
            await asyncio.sleep(
                tried_at + RETRY_PAUSE_S - self._loop.time()
            )  # one that was good and broke is made anew at once
            tried_at = self._loop.time()
            try:
                channel = await connect_to_peer(address, self._fetcher.client_id)
                self.is_leader_down = False
                try:
                    await self._fetch_continuously(channel)
                finally:
                    channel.close()
            except (OSError, TimeoutError) as error:
                self._on_connection_lost(error)
            except KafkaError as reason:
                if self._fetcher.log.log.failure is not None or is_fatal(reason):
                    raise
                logger.info("cannot follow broker %d in epoch %d: %s", self._value.leader, self._value.epoch, reason)

    async def _fetch_continuously(self, channel: Channel) -> None:
        while True:
            told = await self._fetcher.fetch_once(channel, self._value.epoch, self._wait_ms)
            self._on_response(told)

    def _on_connection_lost(self, error: Exception) -> None:
        if is_connection_refused(error) and not self.is_leader_down:
            logger.info("broker %d, which leads the metadata log, is gone", self._value.leader)
            self.is_leader_down = True
            self._on_change()


def is_fatal(reason: KafkaError) -> bool:
    """Whether it would be the same the next time: two logs that have parted, or records of a newer version."""
    return isinstance(reason, CommittedLogDiverged) or reason.code is ErrorCode.unsupported_version


async def connect_to_peer(address: str, client_id: str) -> Channel:
    """`address`: host:port. OSError, of which `refused` knows the one that says that nobody is there; TimeoutError."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        return await open_channel(*parse_host_and_port(address), client_id)


def parse_host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port or 0)


def is_connection_refused(error: BaseException) -> bool:
    """Whether a port is there and nobody listens: the process is gone."""
    return isinstance(error, ConnectionRefusedError) or (
        isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
    )
