"""Runs the requests of the consumer protocol, and of classic members in consumer groups, on the
groups of one shard.

A request changes its group at once, with the records that it appends to the leader's log, and gets
its response when they are replicated. Requests that arrive in between see the change. If the
records cannot be appended, the change is undone. If another broker becomes coordinator before they
are replicated, it may or may not load them, and the client repeats its request there.
"""

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Protocol

from ottla_broker.coordination import consumer_change, consumer_heartbeat, member_deadlines, migrating_members
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.classic_group_requests import ClassicGroupRequests
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla_broker.coordination.consumer_heartbeat import ConsumerHeartbeat, HeartbeatResult
from ottla_broker.coordination.consumer_member import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH, ConsumerMember
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from ottla_broker.coordination.group_config import ConsumerGroupConfig, GroupCoordinatorConfig
from ottla_broker.coordination.group_migration import (
    can_downgrade,
    check_upgrade,
    classic_tombstone,
    downgrade_group,
    upgrade_group,
)
from ottla_broker.coordination.group_type import CONSUMER
from ottla_broker.coordination.group_writes import GroupWrites, RecordStore
from ottla_broker.coordination.heartbeat_turn import (
    HeartbeatOutcome,
    HeartbeatTurn,
    OnHeartbeat,
    WaitingHeartbeat,
    complete_after,
)
from ottla_broker.coordination.joint_heartbeats import heartbeat_together
from ottla_broker.coordination.journal import BATCH_BYTES, Write, wait_for_write
from ottla_broker.coordination.protocol_errors import require_group
from ottla_broker.coordination.records import encode_group_metadata_key, encode_group_metadata_value
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.same_turn import SameTurnFuture
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record

logger = logging.getLogger(__name__)

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


class GroupStore(RecordStore, Protocol):
    """The part of a shard that these requests use."""

    groups: dict[str, Group]

    def schedule_timer(self, group: Group) -> None: ...


class ConsumerGroupRequests:
    def __init__(
        self,
        store: GroupStore,
        classic_groups: ClassicGroupRequests,
        metadata: CoordinatorMetadata,
        config: GroupCoordinatorConfig,
    ) -> None:
        self._store = store
        self._classic_groups = classic_groups
        self._metadata = metadata
        self._config = config
        self._writes = GroupWrites(store, CONSUMER_GROUP_RECORDS)
        self._turn = HeartbeatTurn(self._run_turn)

    def _config_of(self, group_id: str) -> ConsumerGroupConfig:
        return self._config.consumer.of_group(self._metadata.group_configs(group_id))

    # -- the consumer protocol ---------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> HeartbeatResult:
        """Runs a ConsumerGroupHeartbeat. Raises GROUP_ID_NOT_FOUND, also for a group that cannot
        become a consumer group; the errors of `consumer_heartbeat`; and those of the write.
        """
        if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            return await self._leave(self.find_group(group_id), request)
        outcome: SameTurnFuture[HeartbeatOutcome] = SameTurnFuture()
        self.queue_heartbeat(group_id, request, outcome.complete)
        result = await outcome
        if isinstance(result, KafkaError):
            raise result
        return result

    def queue_heartbeat(self, group_id: str, request: ConsumerHeartbeat, complete: OnHeartbeat) -> None:
        """Queues a heartbeat, which must not be that of a leaving member. The heartbeats of a group
        run together at the end of this turn of the event loop. `complete` is called once, with the
        result when the records that the heartbeat wrote are replicated, or with a KafkaError.
        """
        self._turn.add(group_id, WaitingHeartbeat(request, complete))

    def _run_turn(self, group_id: str, waiting: Sequence[WaitingHeartbeat]) -> None:
        for at, one in enumerate(waiting):
            group = self._store.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._run_together(group, waiting[at:])
                return
            try:
                result, write = self._run_first(group_id, one.request)
            except KafkaError as error:
                one.complete(error)
            else:
                complete_after(write, [(one.complete, result)])

    def _run_together(self, group: ConsumerGroup, waiting: Sequence[WaitingHeartbeat]) -> None:
        requests = [one.request for one in waiting]
        changes, results = heartbeat_together(
            group, requests, self._metadata, self._config_of(group.id), self._store.timestamps()
        )
        outcomes: list[tuple[OnHeartbeat, HeartbeatOutcome]]
        outcomes = [(one.complete, result) for one, result in zip(waiting, results, strict=True)]
        half = len(waiting) // 2
        try:
            write = self._writes.append_together(group.id, changes, BATCH_BYTES if half else None)
        except KafkaError as error:
            if error.code is ErrorCode.record_list_too_large and half:
                self._run_together(group, waiting[:half])
                self._run_together(group, waiting[half:])
                return
            write, outcomes = None, [(one.complete, error) for one in waiting]
        self._store.schedule_timer(group)
        complete_after(write, outcomes)

    def _run_first(self, group_id: str, request: ConsumerHeartbeat) -> tuple[HeartbeatResult, Write | None]:
        """Runs a heartbeat of a group that is not a consumer group yet. It creates the group, if
        that is possible. Raises KafkaError."""
        replaced = self._store.groups.get(group_id)
        change, first_records = self._begin_change(group_id, replaced, request)
        try:
            result = consumer_heartbeat.heartbeat(
                change, request, self._metadata, self._config_of(group_id), self._store.timestamps()
            )
            write = self._writes.append(change, first_records)
        except KafkaError:
            change.undo()
            raise
        if replaced is not change.group:
            self._store.groups[group_id] = change.group
            if isinstance(replaced, ClassicGroup):
                # Members with a waiting JoinGroup or SyncGroup rejoin, and find a consumer group.
                self._classic_groups.close_group(replaced, ErrorCode.rebalance_in_progress)
        self._store.schedule_timer(change.group)
        return result, write

    def repeat_heartbeat(self, group_id: str, member_id: str, member_epoch: int) -> int | None:
        """Extends the session of a member whose heartbeat repeats the last one and changes nothing.
        Returns the heartbeat interval in milliseconds; None if the heartbeat needs more than that.
        An earlier response has had this epoch, so there is no write to wait for.
        """
        group = self._store.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        if not consumer_heartbeat.changes_nothing(group, member_id, member_epoch, self._metadata):
            return None
        config = self._config_of(group_id)
        member_deadlines.schedule_session_timeout(
            group, group.members[member_id], config.session_timeout_ms, self._store.timestamps()
        )
        self._store.schedule_timer(group)
        return config.heartbeat_interval_ms

    def find_group(self, group_id: str) -> ConsumerGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        return require_group(self._store.groups, group_id, ConsumerGroup, CONSUMER)

    def _begin_change(
        self, group_id: str, group: Group | None, request: ConsumerHeartbeat
    ) -> tuple[ConsumerChange, list[Record]]:
        """The change of the heartbeat's group, and records to write before those of the heartbeat.
        A new group, also one converted from a classic group, is stored once the heartbeat
        succeeds."""
        if isinstance(group, ConsumerGroup):
            return ConsumerChange(group), []
        if request.member_epoch != JOINING_EPOCH:
            return ConsumerChange(self.find_group(group_id)), []
        if group is None:
            return ConsumerChange(ConsumerGroup(group_id)), []
        if isinstance(group, ShareGroup | StreamsGroup):
            return ConsumerChange(self.find_group(group_id)), []
        if group.state is GroupState.empty:
            return ConsumerChange(ConsumerGroup(group_id)), classic_tombstone(group, self._store.timestamps())
        check_upgrade(group, self._config.consumer)
        change = upgrade_group(group, self._metadata)
        now = self._store.timestamps()
        for member in change.group.members.values():
            assert member.classic is not None
            member_deadlines.schedule_session_timeout(change.group, member, member.classic.session_timeout_ms, now)
        return change, classic_tombstone(group, self._store.timestamps())

    async def _leave(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> HeartbeatResult:
        member = consumer_heartbeat.find_leaving_member(group, request)
        if request.member_epoch == STATIC_LEAVING_EPOCH:
            write, result = self._leave_for_restart(group, member)
        else:
            logger.info("group %s: member %s left", group.id, member.id)
            write, result = self._remove_members(group, [member.id]), HeartbeatResult(member.id, LEAVING_EPOCH)
        await wait_for_write(write)
        return result

    def _leave_for_restart(self, group: ConsumerGroup, member: ConsumerMember) -> tuple[Write | None, HeartbeatResult]:
        logger.info("group %s: static member %s left for a restart", group.id, member.group_instance_id)
        change = ConsumerChange(group)
        result = consumer_heartbeat.leave_for_restart(change, member)
        return self._writes.append_or_undo(change), result

    def expire_members(self, group: ConsumerGroup) -> None:
        """Called at the group's next deadline."""
        expired = member_deadlines.take_expired_members(group, self._store.timestamps())
        self._writes.remove_expired(group, expired, partial(self._remove_members, group))
        self._store.schedule_timer(group)

    def restart_sessions(self, group: ConsumerGroup) -> None:
        """Called when the group has been loaded."""
        config, now = self._config_of(group.id), self._store.timestamps()
        for member in group.members.values():
            timeout_ms = config.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
            member_deadlines.schedule_session_timeout(group, member, timeout_ms, now)
            member_deadlines.schedule_revocation_timeout(group, member, now)
        self._store.schedule_timer(group)

    # -- members of the classic protocol -----------------------------------------------------------

    async def join_classic(self, group: ConsumerGroup, request: JoinRequest) -> JoinResult:
        """Runs the JoinGroup of a classic member in a consumer group that has members."""
        change = ConsumerChange(group)
        now = self._store.timestamps()
        try:
            result = migrating_members.join_group(change, request, self._metadata, self._config_of(group.id), now)
            write = (
                self._downgrade(group, change, ()) if self._can_downgrade(group, ()) else self._writes.append(change)
            )
        except KafkaError:
            change.undo()
            raise
        self._store.schedule_timer(group)
        await wait_for_write(write)
        return result

    def sync_classic(self, group: ConsumerGroup, request: SyncRequest) -> SyncResult:
        result = migrating_members.sync_group(group, request, self._metadata, self._store.timestamps())
        self._store.schedule_timer(group)
        return result

    def heartbeat_classic(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        try:
            return migrating_members.heartbeat(
                group, member_id, group_instance_id, generation, self._store.timestamps()
            )
        finally:
            self._store.schedule_timer(group)

    async def leave_classic(self, group: ConsumerGroup, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        codes, member_ids = migrating_members.find_leaving_members(group, leaving)
        if member_ids:
            await wait_for_write(self._remove_members(group, member_ids))
        return codes

    def delete_empty_group(self, group: ConsumerGroup) -> None:
        """Deletes a group without members, but not its offsets. A classic group may then take its
        id. Returns when the tombstones are in the leader's log. Raises KafkaError if the log does
        not accept them.
        """
        change = ConsumerChange(group)
        consumer_change.remove_group(change)
        self._writes.append_or_undo(change)
        group.is_dead = True
        del self._store.groups[group.id]

    # -- records -----------------------------------------------------------------------------------

    def _remove_members(self, group: ConsumerGroup, member_ids: Sequence[str]) -> Write | None:
        change = ConsumerChange(group)
        if self._can_downgrade(group, member_ids):
            try:
                return self._downgrade(group, change, member_ids)
            except KafkaError:
                change.undo()
                raise
        consumer_heartbeat.fence_members(change, list(member_ids), self._metadata)
        write = self._writes.append_or_undo(change)
        self._store.schedule_timer(group)
        return write

    def _can_downgrade(self, group: ConsumerGroup, without: Collection[str]) -> bool:
        return can_downgrade(group, without, self._config.consumer, self._config.group_max_size)

    def _downgrade(self, group: ConsumerGroup, change: ConsumerChange, without: Collection[str]) -> Write:
        now = self._store.timestamps()
        classic = downgrade_group(group, without, self._config, self._metadata, now)
        needs_rebalance = bool(without) or any(member.epoch != group.epoch for member in group.members.values())
        consumer_change.remove_group(change)
        record = classic.to_record({member.id: member.assignment for member in classic.members.values()})
        key = encode_group_metadata_key(group.id)
        write = self._writes.append(change, last=[Record(now.wall_ms, key, encode_group_metadata_value(record))])
        assert write is not None
        group.is_dead = True
        self._store.groups[group.id] = classic
        for member in classic.members.values():
            classic.schedule_session_timeout(member, now)
        self._store.schedule_timer(classic)
        if needs_rebalance:
            self._classic_groups.rebalance(classic, "no member uses the consumer protocol any more")
        return write
