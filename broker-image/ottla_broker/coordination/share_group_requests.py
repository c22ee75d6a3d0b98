"""Runs the requests of share groups on the groups of one shard (KIP-932).

As with consumer groups, a request changes its group at once, with the records that it appends to
the leader's log, and gets its response when they are replicated. The share state of a partition is
initialized before the partition is assigned, and the heartbeat that finds a new partition waits for
the initialization.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from msgspec.structs import replace

from ottla_broker.coordination import share_change, share_heartbeat
from ottla_broker.coordination.consumer_group_requests import GroupStore
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, LEAVING_EPOCH
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.group_config import GroupCoordinatorConfig, ShareGroupConfig
from ottla_broker.coordination.group_type import SHARE
from ottla_broker.coordination.group_writes import GroupWrites
from ottla_broker.coordination.journal import Write, wait_for_write
from ottla_broker.coordination.protocol_errors import require_group
from ottla_broker.coordination.share_change import ShareChange
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.share_group_records import SHARE_GROUP_RECORDS
from ottla_broker.coordination.share_heartbeat import ShareHeartbeat, ShareHeartbeatResult
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

NO_START_OFFSET: Final = -1


class StatePartition(NamedTuple):
    topic_id: UUID
    partition: int


class ShareStatePersister(Protocol):
    """The part of the share coordinators that group coordinators use. Methods raise KafkaError."""

    async def initialize_state(
        self, group_id: str, at: StatePartition, state_epoch: int, start_offset: int
    ) -> None: ...

    async def delete_state(self, group_id: str, at: StatePartition) -> None: ...


@dataclass(eq=False, repr=False)
class ShareGroupRequests:
    _store: GroupStore
    _metadata: CoordinatorMetadata
    _config: GroupCoordinatorConfig
    _states: Callable[[], ShareStatePersister]

    def __post_init__(self) -> None:
        self._writes = GroupWrites(self._store, SHARE_GROUP_RECORDS)
        self._locks: dict[str, asyncio.Lock] = {}  # group → lock of changes to its share state

    def _config_of(self, group_id: str) -> ShareGroupConfig:
        return self._config.share.of_group(self._metadata.group_configs(group_id))

    # -- members -----------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatResult:
        """Raises GROUP_ID_NOT_FOUND, and the errors of `share_heartbeat`."""
        if request.member_epoch == LEAVING_EPOCH:
            return await self._leave(self.find_group(group_id), request.member_id)
        result = await self._run_heartbeat(group_id, request)
        group = self.find_group(group_id)
        if not share_heartbeat.find_uninitialized(group, self._metadata):
            return result
        if not await self._initialize_partitions(group):
            return result
        again = replace(request, member_epoch=result.member_epoch, subscribed_topic_names=None)
        after = await self._run_heartbeat(group_id, again)
        return replace(after, assignment=self.find_group(group_id).find_member(request.member_id).assigned)

    async def _run_heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatResult:
        change = ShareChange(self._find_or_create_group(group_id, request))
        try:
            result = share_heartbeat.heartbeat(
                change, request, self._metadata, self._config_of(group_id), self._store.timestamps()
            )
            write = self._writes.append(change)
        except KafkaError:
            change.undo()
            raise
        self._store.groups[group_id] = change.group
        self._store.schedule_timer(change.group)
        await wait_for_write(write)
        return result

    def find_group(self, group_id: str) -> ShareGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        return require_group(self._store.groups, group_id, ShareGroup, SHARE)

    def _find_or_create_group(self, group_id: str, request: ShareHeartbeat) -> ShareGroup:
        if group_id not in self._store.groups and request.member_epoch == JOINING_EPOCH:
            return ShareGroup(group_id)
        return self.find_group(group_id)

    async def _leave(self, group: ShareGroup, member_id: str) -> ShareHeartbeatResult:
        group.find_member(member_id)
        logger.info("share group %s: member %s left", group.id, member_id)
        await wait_for_write(self._remove_members(group, [member_id]))
        return ShareHeartbeatResult(member_id, LEAVING_EPOCH)

    def expire_members(self, group: ShareGroup) -> None:
        """Called at the group's next deadline."""
        expired = share_heartbeat.take_expired_members(group, self._store.timestamps())
        reasons = dict.fromkeys(expired, "its session expired")
        self._writes.remove_expired(group, reasons, partial(self._remove_members, group))
        self._store.schedule_timer(group)

    def restart_sessions(self, group: ShareGroup) -> None:
        """Called when the group has been loaded."""
        deadline_ms = self._store.timestamps().loop_ms + self._config_of(group.id).session_timeout_ms
        for member_id in group.members:
            group.deadlines[member_id] = deadline_ms
            group.lower_next_deadline(deadline_ms)
        self._store.schedule_timer(group)

    def _remove_members(self, group: ShareGroup, member_ids: Sequence[str]) -> Write | None:
        change = ShareChange(group)
        for member_id in member_ids:
            share_change.remove_member(change, member_id)
        share_change.raise_epoch(change, self._metadata)
        if group.is_empty:
            group.assigned_ms = None
        return self._writes.append_or_undo(change)

    # -- the partitions' share state ---------------------------------------------------------------

    async def _initialize_partitions(self, group: ShareGroup) -> bool:
        """Initializes the share state of partitions that have none yet. Returns False if none could
        be initialized, or the group was deleted during that; True also if nothing is left to do, or
        the group was deleted before. A later heartbeat tries the failed ones again. Raises
        KafkaError if the group's records are not replicated."""
        async with self._lock_of(group.id):
            missing = share_heartbeat.find_uninitialized(group, self._metadata)
            wanted = [StatePartition(topic, at) for topic, found in missing.items() for at in sorted(found.partitions)]
            if not wanted or group.is_dead:
                return True  # another heartbeat has done it, or the group was deleted
            # The state epoch must be one that every later coordinator of the group knows: it is
            # replicated with this record before a share coordinator gets it.
            change, epoch = ShareChange(group), group.epoch
            share_change.write_initializing(change, missing)
            await self._write(change)
            done = await self._try_each(
                wanted, lambda at: self._states().initialize_state(group.id, at, epoch, NO_START_OFFSET), group.id
            )
            if not done or self._store.groups.get(group.id) is not group:
                return False
            change = ShareChange(group)
            share_heartbeat.add_initialized(change, done, self._metadata)
            await self._write(change)
            return True

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[StatePartition, int]
    ) -> dict[StatePartition, KafkaError]:
        """Sets the offsets at which the group continues; creates the group if it is missing.
        Returns the errors of partitions whose offset could not be set. Raises GROUP_ID_NOT_FOUND
        for a group of another type, NON_EMPTY_GROUP."""
        async with self._lock_of(group_id):
            group = self.find_empty_group(group_id) if group_id in self._store.groups else ShareGroup(group_id)
            change = ShareChange(group)
            share_change.raise_epoch(change, self._metadata)  # leaders that know the former offsets are fenced
            write = self._writes.append_or_undo(change)
            self._store.groups[group_id] = group
            await wait_for_write(write)
            epoch = group.epoch
            errors: dict[StatePartition, KafkaError] = {}

            async def initialize(at: StatePartition) -> None:
                await self._states().initialize_state(group_id, at, epoch, offsets[at])

            done = await self._try_each(list(offsets), initialize, group_id, errors)
            if done and self._store.groups.get(group_id) is group:
                change = ShareChange(group)
                share_heartbeat.add_initialized(change, done, self._metadata)
                await self._write(change)
        return errors

    async def delete_offsets(self, group_id: str, topics: Iterable[UUID]) -> dict[UUID, KafkaError]:
        """Deletes the group's offsets in these topics. Returns the errors of topics whose offsets
        could not be deleted. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.find_empty_group(group_id)
        return await self._delete_states(group, topics)

    async def delete_offsets_of_topic(self, group: ShareGroup, topic: UUID) -> None:
        """Called when the topic has been deleted: deletes the group's offsets in it."""
        if topic in group.initialized:
            await self._delete_states(group, [topic])

    async def _delete_states(self, group: ShareGroup, topics: Iterable[UUID]) -> dict[UUID, KafkaError]:
        async with self._lock_of(group.id):
            wanted = [StatePartition(topic, at) for topic in topics for at in group.initialized_partitions(topic)]
            errors: dict[StatePartition, KafkaError] = {}
            await self._try_each(wanted, lambda at: self._states().delete_state(group.id, at), group.id, errors)
            failed = {at.topic_id: reason for at, reason in errors.items()}
            deleted = {at.topic_id for at in wanted} - failed.keys()
            if deleted and self._store.groups.get(group.id) is group:
                change = ShareChange(group)
                share_change.write_initialized(
                    change, {topic: found for topic, found in group.initialized.items() if topic not in deleted}
                )
                await self._write(change)
            return failed

    async def delete_group(self, group: ShareGroup) -> None:
        """Deletes the group's share states, then its records. Raises NON_EMPTY_GROUP; the share
        coordinator's error if it could not delete a state, and then the group remains."""
        self.find_empty_group(group.id)
        failed = await self._delete_states(group, list(group.initialized))
        for reason in failed.values():
            raise reason
        self.find_empty_group(group.id)
        change = ShareChange(group)
        share_change.remove_group(change)
        write = self._writes.append_or_undo(change)
        group.is_dead = True
        del self._store.groups[group.id]
        self._locks.pop(group.id, None)
        await wait_for_write(write)

    def check_alterable(self, group_id: str) -> None:
        """Raises GROUP_ID_NOT_FOUND for a group of another type, NON_EMPTY_GROUP."""
        if group_id in self._store.groups:
            self.find_empty_group(group_id)

    def find_empty_group(self, group_id: str) -> ShareGroup:
        """Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.find_group(group_id)
        if not group.is_empty:
            raise KafkaError(ErrorCode.non_empty_group, f"Group {group_id} is not empty.")
        return group

    def _lock_of(self, group_id: str) -> asyncio.Lock:
        return self._locks.setdefault(group_id, asyncio.Lock())

    async def _try_each(
        self,
        wanted: Sequence[StatePartition],
        request: Callable[[StatePartition], Awaitable[None]],
        group_id: str,
        errors: dict[StatePartition, KafkaError] | None = None,
    ) -> list[StatePartition]:
        """Sends the request for each partition. Returns those that succeeded; puts the errors of
        the others into `errors`."""
        results = await asyncio.gather(*(request(at) for at in wanted), return_exceptions=True)
        done = []
        for at, result in zip(wanted, results, strict=True):
            if isinstance(result, KafkaError):
                logger.warning(
                    "share group %s: state of partition %d of %s: %s", group_id, at.partition, at.topic_id, result
                )
                if errors is not None:
                    errors[at] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                done.append(at)
        return done

    # -- records -----------------------------------------------------------------------------------

    async def _write(self, change: ShareChange) -> None:
        await wait_for_write(self._writes.append_or_undo(change))
