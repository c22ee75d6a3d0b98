"""Runs the requests of the streams protocol on the groups of one shard.

As with consumer groups, a request changes its group at once, with the records that it appends to
the leader's log, and gets its response when they are replicated. If they cannot be appended, the
change is undone.
"""

import logging
from functools import partial

from ottla_broker.coordination import member_deadlines, streams_change, streams_heartbeat
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.consumer_group_requests import GroupStore
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, LEAVING_EPOCH
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import GroupCoordinatorConfig, StreamsGroupConfig
from ottla_broker.coordination.group_migration import classic_tombstone
from ottla_broker.coordination.group_type import STREAMS
from ottla_broker.coordination.group_writes import GroupWrites
from ottla_broker.coordination.journal import Write, wait_for_write
from ottla_broker.coordination.protocol_errors import require_group
from ottla_broker.coordination.streams_change import StreamsChange
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.coordination.streams_group_records import STREAMS_GROUP_RECORDS
from ottla_broker.coordination.streams_heartbeat import StreamsHeartbeat, StreamsHeartbeatResult
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import Record

logger = logging.getLogger(__name__)


class StreamsGroupRequests:
    def __init__(self, store: GroupStore, metadata: CoordinatorMetadata, config: GroupCoordinatorConfig) -> None:
        self._store = store
        self._metadata = metadata
        self._config = config
        self._writes = GroupWrites(store, STREAMS_GROUP_RECORDS)

    def _config_of(self, group_id: str) -> StreamsGroupConfig:
        return self._config.streams.of_group(self._metadata.group_configs(group_id))

    async def heartbeat(self, group_id: str, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """Raises GROUP_ID_NOT_FOUND, and the errors of `streams_heartbeat`."""
        if request.member_epoch <= LEAVING_EPOCH:  # −2 for a static member
            return await self._leave(self.find_group(group_id), request)
        now = self._store.timestamps()
        group, first = self._find_or_create_group(group_id, request, now)
        change = StreamsChange(group)
        try:
            result = streams_heartbeat.heartbeat(change, request, self._metadata, self._config_of(group_id), now)
            write = self._writes.append(change, first)
        except KafkaError:
            change.undo()
            raise
        self._store.groups[group_id] = group
        self._store.schedule_timer(group)
        await wait_for_write(write)
        return result

    def _find_or_create_group(
        self, group_id: str, request: StreamsHeartbeat, now: Timestamps
    ) -> tuple[StreamsGroup, list[Record]]:
        """The group, and records to write before its own. A new group replaces a classic group
        without members, whose offsets it takes over."""
        known = self._store.groups.get(group_id)
        if request.member_epoch == JOINING_EPOCH:
            if known is None:
                return StreamsGroup(group_id), []
            if isinstance(known, ClassicGroup) and known.state is GroupState.empty:
                return StreamsGroup(group_id), classic_tombstone(known, now)
        return self.find_group(group_id), []

    def find_group(self, group_id: str) -> StreamsGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        return require_group(self._store.groups, group_id, StreamsGroup, STREAMS)

    async def _leave(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        if request.shuts_down_application:
            group.shutdown_requested_by = request.member_id
        group.find_member(request.member_id)
        logger.info("streams group %s: member %s left", group.id, request.member_id)
        await wait_for_write(self._remove_members(group, [request.member_id]))
        return StreamsHeartbeatResult(request.member_id, request.member_epoch)

    def expire_members(self, group: StreamsGroup) -> None:
        """Called at the group's next deadline."""
        expired = member_deadlines.take_expired_members(group, self._store.timestamps())
        self._writes.remove_expired(group, expired, partial(self._remove_members, group))
        self._store.schedule_timer(group)

    def restart_sessions(self, group: StreamsGroup) -> None:
        """Called when the group has been loaded."""
        config, now = self._config_of(group.id), self._store.timestamps()
        for member in group.members.values():
            member_deadlines.schedule_session_timeout(group, member, config.session_timeout_ms, now)
            member_deadlines.schedule_revocation_timeout(group, member, now)
        self._store.schedule_timer(group)

    def delete_empty_group(self, group: StreamsGroup) -> None:
        """Deletes a group without members, but not its offsets. Returns when the tombstones are in
        the leader's log. Raises KafkaError if the log does not accept them."""
        change = StreamsChange(group)
        streams_change.remove_group(change)
        self._writes.append_or_undo(change)
        group.is_dead = True
        del self._store.groups[group.id]

    def _remove_members(self, group: StreamsGroup, member_ids: list[str]) -> Write | None:
        change = StreamsChange(group)
        streams_heartbeat.fence_members(change, member_ids)
        write = self._writes.append_or_undo(change)
        self._store.schedule_timer(group)
        return write
