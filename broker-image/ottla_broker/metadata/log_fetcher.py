"""Copies the metadata log from another broker: fetch, truncate what diverges, append, sync, and
fetch again.

Each fetch names an offset that is synced to this broker's device, so to the leader a fetch is an
acknowledgement.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ottla_broker.metadata import snapshot_generator
from ottla_broker.metadata.controller_channel import FORWARDING_SOFTWARE_NAME
from ottla_broker.metadata.metadata_fetch import (
    LeaderAndEpoch,
    MetadataFetchRequest,
    MetadataFetchResponse,
    truncation_offset,
)
from ottla_broker.metadata.metadata_log import CommittedLogDiverged, MetadataLog
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.voter_set import QuorumEndpoint, Voter
from ottla_broker.runtime import Runtime
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS, ChannelBuilder
from ottla_broker.wire.errors import ErrorCode, KafkaError

CONNECT_TIMEOUT_S = 1.0
RESPONSE_TIMEOUT_S = 2.0


class FetchRefused(KafkaError):
    """A fetch has failed with an error code: the receiver neither leads the metadata log in the
    request's epoch nor serves this broker as a follower, or belongs to another cluster; or this
    broker has promised a newer epoch. `leader`: the leader that the receiver knows.
    """

    def __init__(self, code: ErrorCode, leader: LeaderAndEpoch | None) -> None:
        super().__init__(code, f"fetch of the metadata log failed: {code.name}")
        self.leader = leader


class MetadataLogFetcher:
    """Copies into `log` for broker `me`. `cluster_id`: sent with each fetch, once known.
    `is_current_epoch`: False once this broker has promised to follow a newer one. `on_progress` is
    called after each response."""

    def __init__(
        self,
        log: MetadataLog,
        me: Voter,
        runtime: Runtime,
        is_current_epoch: Callable[[int], bool],
        on_progress: Callable[[], None],
        channels: ChannelBuilder = UNSECURED_CHANNELS,
    ) -> None:
        self.log = log
        self.channels = channels
        self.client_id = f"ottla-quorum-{me.broker}"
        self.cluster_id: str | None = None
        self._me = me
        self._runtime = runtime
        self._is_current_epoch = is_current_epoch
        self._on_progress = on_progress

    async def fetch_once(
        self, channel: Channel, epoch: int, max_wait_ms: int = 0, timeout_s: float = RESPONSE_TIMEOUT_S
    ) -> MetadataFetchResponse:
        """Sends one fetch to a broker in `epoch` and applies the response to the log. The receiver
        may wait `max_wait_ms` for records, and take `timeout_s` in addition.

        Raises FetchRefused with the response's error, or FENCED_LEADER_EPOCH when `epoch` is no
        longer current; the KafkaError of the log or the snapshot (KAFKA_STORAGE_ERROR,
        CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE, UNSUPPORTED_VERSION, CommittedLogDiverged,
        SNAPSHOT_NOT_FOUND); ConnectionError, TimeoutError.
        """
        from ottla_broker.metadata import quorum_messages  # takes 20 ms, and a broker without peers needs none of it

        log = self.log
        log_end = await log.wait_until_durable()
        request = MetadataFetchRequest(
            self._me.broker,
            self._me.directory,
            epoch,
            log_end,
            log.high_watermark,
            max_wait_ms=max_wait_ms,
            cluster_id=self.cluster_id,
        )
        self._check_epoch(epoch)  # a fetch acknowledges records: after a vote in a newer epoch it may not
        async with asyncio.timeout(max_wait_ms / 1000 + timeout_s):
            answer = await channel.send(quorum_messages.build_fetch_request(request))
        response = quorum_messages.parse_fetch_response(answer)
        if response.error is not ErrorCode.none:
            raise FetchRefused(response.error, response.leader)
        self._check_epoch(epoch)
        self._on_progress()
        if response.snapshot_id is not None:
            await self._store_snapshot(
                response.snapshot_id,
                quorum_messages.fetch_snapshot(channel, self._me.broker, epoch, response.snapshot_id),
            )
        elif response.diverging_epoch is not None:
            log.truncate_to(truncation_offset(log.partition_log.epochs, log.end_offset, response.diverging_epoch))
            if log.end_offset >= log_end.offset:
                raise CommittedLogDiverged(
                    ErrorCode.unknown_server_error,
                    f"diverging epoch {response.diverging_epoch} truncates nothing of a log that ends at {log_end}",
                )
        elif response.records:
            log.append_as_follower(response.records, epoch)
        if response.diverging_epoch is None and response.high_watermark >= 0:
            log.advance_high_watermark(response.high_watermark)
        return response

    def _check_epoch(self, epoch: int) -> None:
        if not self._is_current_epoch(epoch):
            raise FetchRefused(ErrorCode.fenced_leader_epoch, None)

    async def _store_snapshot(self, snapshot_id: EpochAndOffset, chunks: AsyncIterator[bytes]) -> None:
        """Replaces this broker's log, which ends before the sender's starts or diverges before
        that.
        """
        snapshots = self.log.snapshots
        try:
            snapshots.create_partial(snapshot_id)
            async for chunk in chunks:
                self._on_progress()
                snapshots.append_partial(snapshot_id, chunk)
            await self._runtime.run_in_thread(snapshots.complete_partial, snapshot_id)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise KafkaError(ErrorCode.kafka_storage_error, f"failed to store a metadata snapshot: {error}") from error
        snapshot_generator.install_snapshot(self.log, snapshot_id)


def is_fatal(reason: KafkaError) -> bool:
    """True for errors that a retry cannot change: diverged logs, and records of a newer version."""
    return isinstance(reason, CommittedLogDiverged) or reason.code is ErrorCode.unsupported_version


@asynccontextmanager
async def connect(channels: ChannelBuilder, endpoint: QuorumEndpoint, client_id: str) -> AsyncIterator[Channel]:
    """A connection to another broker, closed at the end. Raises OSError, ConnectionRefusedError
    among them; TimeoutError.
    """
    channel = await open_channel(channels, endpoint, client_id, CONNECT_TIMEOUT_S)
    try:
        yield channel
    finally:
        channel.close()


async def open_channel(channels: ChannelBuilder, endpoint: QuorumEndpoint, client_id: str, timeout_s: float) -> Channel:
    """A connection to another broker, which the caller closes. Raises OSError,
    ConnectionRefusedError among them; TimeoutError.
    """
    async with asyncio.timeout(timeout_s):
        return await channels.open_channel(*endpoint, client_id, software=FORWARDING_SOFTWARE_NAME)
