"""Carries out what classic groups of one shard decide (`classic_membership`,
`classic_generations`): completes requests, writes records, and calls a group at its next deadline.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast

from ottla_broker.coordination import classic_generations
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.effects import (
    CompleteRequest,
    Effect,
    JoinResult,
    SyncResult,
    Timestamps,
    WriteGroupMetadata,
    WritePurpose,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.journal import Write
from ottla_broker.coordination.records import encode_group_metadata_key, encode_group_metadata_value
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record


class ClassicGroupStore(Protocol):
    """The part of a shard that classic groups use."""

    @property
    def is_closed(self) -> bool: ...

    def timestamps(self) -> Timestamps: ...

    def write_records(self, records: Sequence[Record]) -> Write: ...

    def schedule_timer(self, group: ClassicGroup) -> None: ...


class WaitingRequest(Protocol):
    """What this shard's groups get as a PendingRequest."""

    def complete(self, result: Any, /) -> object:
        """Called once, with a JoinResult or a SyncResult. The connection may be gone."""
        ...


class ClassicGroupRequests:
    def __init__(self, store: ClassicGroupStore, config: GroupCoordinatorConfig) -> None:
        self._store = store
        self._config = config

    def run_effects(self, group: ClassicGroup, effects: Sequence[Effect]) -> list[Write]:
        """Executes a group's effects. Returns the writes among them.

        Requests are completed last, because a connection then serves its next request at once.
        """
        writes = [self._write(group, effect) for effect in effects if isinstance(effect, WriteGroupMetadata)]
        self._store.schedule_timer(group)
        _complete_requests(effects)
        return writes

    def _write(self, group: ClassicGroup, effect: WriteGroupMetadata) -> Write:
        record = Record(
            self._store.timestamps().wall_ms,
            encode_group_metadata_key(group.id),
            encode_group_metadata_value(effect.metadata),
        )
        write = self._store.write_records([record])
        write.add_done_callback(partial(self._on_written, group, effect.purpose))
        return write

    def _on_written(self, group: ClassicGroup, purpose: WritePurpose, write: Write) -> None:
        if not self._store.is_closed:
            effects = classic_generations.on_write_completed(group, purpose, write.result(), self._store.timestamps())
            self.run_effects(group, effects)

    def rebalance(self, group: ClassicGroup, reason: str) -> None:
        classic_generations.prepare_rebalance(group, self._store.timestamps(), reason)
        self.run_effects(group, group.take_effects())

    def restart_sessions(self, group: ClassicGroup) -> None:
        """Called when the group has been loaded."""
        now = self._store.timestamps()
        for member in group.members.values():
            group.schedule_session_timeout(member, now)
        if len(group.members) > self._config.group_max_size:
            classic_generations.prepare_rebalance(group, now, "the group is larger than group.max.size")
        self.run_effects(group, group.take_effects())

    def expire_members(self, group: ClassicGroup) -> None:
        """Called at the group's next deadline."""
        self.run_effects(group, classic_generations.expire_deadlines(group, self._store.timestamps()))

    def close_group(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answers the group's waiting requests with the error; the group becomes Dead."""
        for member in group.members.values():
            group.complete_join(member, JoinResult(member.id, error))
            group.complete_sync(member, SyncResult(error))
        group.transition_to(GroupState.dead, self._store.timestamps())
        _complete_requests(group.take_effects())


def _complete_requests(effects: Sequence[Effect]) -> None:
    for effect in effects:
        if isinstance(effect, CompleteRequest):
            cast(WaitingRequest, effect.request).complete(effect.result)
