"""Follows the leader of the metadata log in one epoch.

Voters, and the observers that may become voters soon, fetch from the leader alone. Other observers
copy committed records from a voter (`fetch_sources`), and fetch from the leader first, until their
log no longer diverges from the leader's, and then every `LEADER_FETCH_INTERVAL_S`. So the leader
knows how far each observer is, and no observer depends on a voter that is behind.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ottla_broker.metadata.failure_detector import is_connection_refused
from ottla_broker.metadata.fetch_sources import FetchSources
from ottla_broker.metadata.log_fetcher import FetchRefused, MetadataLogFetcher, connect, is_fatal, open_channel
from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch, MetadataFetchResponse
from ottla_broker.metadata.voter_set import QuorumEndpoint, Voter
from ottla_broker.wire.channel import Channel
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.1
LEADER_FETCH_INTERVAL_S = 10.0


@dataclass(eq=False, repr=False)
class LeaderFollower:
    """Fetches in one epoch from its leader, or from the voters that `_sources` chooses.

    `_max_wait_ms`: how long the receiver may wait for records, except for the first fetch on a
    connection, whose response shows that the leader is heard; `_voter_timeout_s`: how long a voter
    may take in addition, or to connect. `_on_response` is called after each fetch,
    `_on_leader_down` when the leader's port refuses connections or its process does not lead, and
    `_on_leader` when a response names a newer one.
    """

    _fetcher: MetadataLogFetcher
    _sources: FetchSources
    _leader_id: int
    _endpoint: QuorumEndpoint
    _epoch: int
    _max_wait_ms: int
    _voter_timeout_s: float
    _on_response: Callable[[MetadataFetchResponse], None]
    _on_leader_down: Callable[[], None]
    _on_leader: Callable[[LeaderAndEpoch], Awaitable[None]]
    _voter_channel: tuple[Voter, Channel] | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def run(self) -> None:
        """Fetches until cancelled. Raises FetchRefused when a broker of another cluster answers,
        and KafkaError when this broker's own log fails or cannot follow.
        """
        last_attempt_s = self._loop.time() - RETRY_PAUSE_S
        try:
            while True:
                # A connection that worked and broke is replaced at once.
                await asyncio.sleep(last_attempt_s + RETRY_PAUSE_S - self._loop.time())
                last_attempt_s = self._loop.time()
                await self._follow_leader()
        finally:
            self._close_voter_channel()

    async def _follow_leader(self) -> None:
        """Returns when the connection to the leader has failed or the leader has refused a
        fetch.
        """
        try:
            async with connect(self._fetcher.channels, self._endpoint, self._fetcher.client_id) as leader:
                # The first fetch does not wait for records: after a failed election the next one
                # may begin before they come.
                max_wait_ms = 0
                while True:
                    response = await self._fetcher.fetch_once(leader, self._epoch, max_wait_ms)
                    max_wait_ms = self._max_wait_ms
                    self._on_response(response)
                    voter = self._sources.choose(self._leader_id, self._epoch)
                    if voter is not None and response.diverging_epoch is None:
                        await self._copy_from_voter(voter)
        except OSError as error:
            if is_connection_refused(error):
                self._on_leader_down()
        except FetchRefused as reason:
            if reason.code is ErrorCode.inconsistent_cluster_id:
                raise
            self._on_leader_down()
            if reason.leader is not None:
                await self._on_leader(reason.leader)
        except KafkaError as reason:
            self._raise_if_fatal(reason)
            logger.info("cannot follow broker %d in epoch %d: %s", self._leader_id, self._epoch, reason)

    def _raise_if_fatal(self, reason: KafkaError) -> None:
        if self._fetcher.log.partition_log.failure is not None or is_fatal(reason):
            raise reason

    # --- copying from a voter

    async def _copy_from_voter(self, voter: Voter) -> None:
        """Returns when it is time to fetch from the leader, or when the voter has failed."""
        fetcher, until_s = self._fetcher, self._loop.time() + LEADER_FETCH_INTERVAL_S
        try:
            channel = await self._open_voter_channel(voter)
            while self._loop.time() < until_s and self._sources.may_copy:
                response = await fetcher.fetch_once(channel, self._epoch, self._max_wait_ms, self._voter_timeout_s)
                self._on_response(response)
        except (OSError, KafkaError) as reason:
            self._close_voter_channel()
            self._sources.exclude(voter, self._epoch)
            why = str(reason) or type(reason).__name__
            logger.info("broker %d does not serve the metadata log, fetching from the leader: %s", voter.broker, why)
            if isinstance(reason, FetchRefused):
                if reason.leader is not None:
                    await self._on_leader(reason.leader)
            elif isinstance(reason, KafkaError):
                self._raise_if_fatal(reason)

    async def _open_voter_channel(self, voter: Voter) -> Channel:
        """The open connection if it is to this voter, else a new one."""
        if self._voter_channel is not None and self._voter_channel[0] == voter and self._voter_channel[1].is_open:
            return self._voter_channel[1]
        self._close_voter_channel()
        fetcher = self._fetcher
        assert voter.endpoint is not None  # `sources` chooses registered brokers
        channel = await open_channel(fetcher.channels, voter.endpoint, fetcher.client_id, self._voter_timeout_s)
        self._voter_channel = voter, channel
        return channel

    def _close_voter_channel(self) -> None:
        if self._voter_channel is not None:
            self._voter_channel[1].close()
            self._voter_channel = None
