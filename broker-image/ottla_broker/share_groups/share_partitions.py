"""The share-partitions that this broker serves, as leader of their partitions, and the sessions of
their members (Kafka's SharePartitionManager)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config import Config
from ottla_broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla_broker.metadata.partition_index import TopicIdPartition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.share_groups.share_group_config import ShareDeliveryConfig
from ottla_broker.share_groups.share_partition import Acknowledgement
from ottla_broker.share_groups.share_partition_leader import (
    DeadLetterQueue,
    DeliveredRecords,
    ShareFetchLimits,
    SharePartitionLeader,
)
from ottla_broker.share_groups.share_sessions import ShareSession, ShareSessions
from ottla_broker.share_groups.share_state import SharePartitionKey
from ottla_broker.share_groups.share_state_client import ShareStateClient
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FetchResult = DeliveredRecords | KafkaError | None
"""None: the member has acquired no record."""
LeadersFound = dict[TopicIdPartition, SharePartitionLeader | KafkaError]


@dataclass(eq=False, repr=False)
class SharePartitions:
    _config: Config
    _image: MetadataImage
    _partitions: Partitions
    _states: ShareStateClient
    _is_in_session: Callable[[], bool]
    _now_ms: Callable[[], int]
    _dead_letters: DeadLetterQueue
    sessions: ShareSessions = field(default_factory=ShareSessions)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    _leaders: dict[SharePartitionKey, SharePartitionLeader] = field(default_factory=dict)
    _is_closed: bool = False

    def config_of(self, group_id: str) -> ShareDeliveryConfig:
        return ShareDeliveryConfig.of_group(self._config, self._image.configs.get((GROUP_RESOURCE, group_id), {}))

    def close(self) -> None:
        self._is_closed = True
        self._tasks.cancel_soon()
        for leader in self._leaders.values():
            leader.close()
        self._leaders.clear()

    # -- sessions ----------------------------------------------------------------------------------

    async def open_session(self, group_id: str, member_id: str) -> ShareSession:
        """Opens a session. It replaces the one that the member has; records that the member has
        acquired stay acquired. The group's share-partitions without acquired records are loaded
        again at their next use, because an administrator may have changed the group's offsets.
        Raises SHARE_SESSION_LIMIT_REACHED."""
        with suppress(KafkaError):  # the member has no session
            self.sessions.close(self.sessions.find(group_id, member_id))
        session = self.sessions.open(group_id, member_id, self.config_of(group_id).max_sessions)
        for key, leader in list(self._leaders.items()):
            if key.group_id == group_id and (leader.is_closed or leader.is_idle):
                leader.close()
                del self._leaders[key]
        return session

    async def close_session(self, session: ShareSession) -> None:
        """Closes the session, and makes the records available that the member had acquired in the
        session's partitions. If that fails, and in partitions that the member no longer fetches,
        they are available when their locks expire."""
        self.sessions.close(session)
        for topic_id, partition in list(session.partitions):
            leader = self._leaders.get(SharePartitionKey(session.group_id, topic_id, partition))
            if leader is not None and not leader.is_closed:
                try:
                    await leader.release(session.member_id)
                except KafkaError as reason:  # the locks expire
                    logger.info("records of member %s are not released: %s", session.member_id, reason)

    def on_disconnected(self, session: ShareSession) -> None:
        """Called when the connection that opened the session is closed: closes the session."""
        if not session.is_closed:
            self._tasks.start(self.close_session(session))

    # -- acknowledging and fetching ----------------------------------------------------------------

    async def acknowledge(
        self, group_id: str, member_id: str, at: TopicIdPartition, acknowledgements: Sequence[Acknowledgement]
    ) -> None:
        """Returns when the acknowledgements are stored. Raises KafkaError."""
        leader = await self._find_leader(group_id, at)
        await leader.acknowledge(member_id, acknowledgements)

    async def fetch(
        self, session: ShareSession, limits: ShareFetchLimits, *, min_bytes: int, max_wait_s: float
    ) -> dict[TopicIdPartition, FetchResult]:
        """Acquires records of the session's partitions for its member. Returns as soon as a
        partition has `min_bytes` of records, a record that is available again, or an error; else
        after `max_wait_s`, with what there is. Loading a share-partition may take longer than that.
        In a closed session every result is None."""
        session.rotate()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + max_wait_s
        found: LeadersFound = {}
        changed = asyncio.Event()
        try:
            while True:
                await self._find_leaders(session, found, changed)
                if session.is_closed:
                    return dict.fromkeys(found)
                is_last = loop.time() >= until_s
                results = self._deliver(session.member_id, found, limits, 1 if is_last else min_bytes)
                if is_last or any(result is not None for result in results.values()):
                    return results
                changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until_s):
                        await changed.wait()
        finally:
            for leader in found.values():
                if isinstance(leader, SharePartitionLeader):
                    leader.waiters.remove(changed.set)

    async def _find_leaders(self, session: ShareSession, found: LeadersFound, changed: asyncio.Event) -> None:
        """Adds the leaders of the session's partitions to `found`, or the error of finding one;
        the leaders' waiters set `changed`. A leader that was closed meanwhile, because another
        member has opened a session or another broker leads, is replaced."""
        wanted = list(found or session.partitions)
        while missing := [at for at in wanted if _is_outdated(found.get(at))]:
            for at, leader in zip(
                missing,
                await asyncio.gather(*(self._find_leader_or_error(session.group_id, at) for at in missing)),
                strict=True,
            ):
                found[at] = leader
                if isinstance(leader, SharePartitionLeader):
                    leader.waiters.add(changed.set)

    def _deliver(
        self, member_id: str, found: LeadersFound, limits: ShareFetchLimits, min_bytes: int
    ) -> dict[TopicIdPartition, FetchResult]:
        results: dict[TopicIdPartition, FetchResult] = {}
        max_bytes, enough, at_most = limits.max_bytes, limits.enough, limits.at_most
        for at, leader in found.items():
            results[at] = None
            if isinstance(leader, KafkaError):
                results[at] = leader
            elif max_bytes > 0 and enough > 0 and at_most > 0:
                try:
                    if not leader.has_enough(min_bytes):
                        continue
                    delivered = leader.deliver(member_id, ShareFetchLimits(max_bytes, enough, at_most))
                except KafkaError as reason:
                    results[at] = reason
                    continue
                if delivered is not None:
                    results[at] = delivered
                    count = sum(one.last - one.first + 1 for one in delivered.acquired)
                    max_bytes, enough, at_most = max_bytes - len(delivered.records), enough - count, at_most - count
        return results

    async def _find_leader_or_error(self, group_id: str, at: TopicIdPartition) -> SharePartitionLeader | KafkaError:
        try:
            return await self._find_leader(group_id, at)
        except KafkaError as reason:
            return reason

    async def _find_leader(self, group_id: str, at: TopicIdPartition) -> SharePartitionLeader:
        """The share-partition's leader, loaded. Raises UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
        and the share coordinator's errors."""
        if self._is_closed:
            raise KafkaError(ErrorCode.not_leader_or_follower, "the broker is stopping")
        topic_id, index = at
        partition = self._partitions.leader(self._partitions.topic_name(topic_id), index, topic_id=topic_id)
        key = SharePartitionKey(group_id, topic_id, index)
        leader = self._leaders.get(key)
        if leader is None or leader.is_closed or leader.partition is not partition:
            if leader is not None:
                leader.close()
            leader = self._leaders[key] = SharePartitionLeader(
                key,
                partition,
                self._states,
                lambda: self.config_of(group_id),
                self._is_in_session,
                self._now_ms,
                self._dead_letters,
            )
        await leader.load()
        return leader


def _is_outdated(found: SharePartitionLeader | KafkaError | None) -> bool:
    return found is None or (isinstance(found, SharePartitionLeader) and found.is_closed)
