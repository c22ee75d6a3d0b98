"""Appends the changes of the groups of one shard, and remembers each group's last write."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_change import GroupChange
from ottla_broker.coordination.journal import Write
from ottla_broker.coordination.record_types import RecordTypes
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, estimate_size

logger = logging.getLogger(__name__)

EXPIRY_RETRY_MS: Final = 1_000
"""Delay before the removal of expired members is tried again if its records could not be
appended."""

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class ExpiringGroup(Protocol):
    id: str

    def lower_next_deadline(self, deadline_ms: int) -> None: ...


class RecordStore(Protocol):
    def timestamps(self) -> Timestamps: ...

    def append_records(self, records: Sequence[Record]) -> Write:
        """Appends the records to the log before it returns. The result completes when they are
        replicated. Raises KafkaError if the log does not accept them.
        """
        ...

    @property
    def log_end(self) -> int: ...

    def is_replicated(self, end: int) -> bool:
        """True if all records below this offset are replicated."""
        ...


class GroupWrites(Generic[KeyT, ValueT]):
    """Writes of the groups of one protocol."""

    def __init__(self, store: RecordStore, types: RecordTypes[KeyT, ValueT]) -> None:
        self._store = store
        self._types = types
        # Group → its last write, until that is replicated, and the end of the log after it.
        self._in_flight: dict[str, tuple[Write, int]] = {}

    def append(
        self, change: GroupChange[Any, KeyT, ValueT], first: Sequence[Record] = (), last: Sequence[Record] = ()
    ) -> Write | None:
        """Appends the change's records, with `first` before and `last` after them, and returns
        their write. Without records, returns the group's last write, because the response may tell
        of a change that is not replicated yet; None once that write is replicated. Raises
        KafkaError if the log does not accept the records.
        """
        return self._append(change.group.id, [*first, *self._encode_all(change), *last])

    def append_together(
        self, group_id: str, changes: Sequence[GroupChange[Any, KeyT, ValueT]], max_bytes: int | None
    ) -> Write | None:
        """Like `append`, for successive changes of one group. After a KafkaError the group is as it
        was before the first one. Raises RECORD_LIST_TOO_LARGE for records of more than `max_bytes`.
        """
        try:
            records = [record for change in changes for record in self._encode_all(change)]
            if max_bytes is not None and sum(map(estimate_size, records)) > max_bytes:
                raise KafkaError(ErrorCode.record_list_too_large)
            return self._append(group_id, records)
        except KafkaError:
            for change in reversed(changes):
                change.undo()
            raise

    def remove_expired(
        self, group: ExpiringGroup, expired: Mapping[str, str], remove: Callable[[list[str]], object]
    ) -> None:
        """Removes members with `remove`, which may raise KafkaError: then the removal is retried
        after EXPIRY_RETRY_MS. `expired`: member id → reason.
        """
        for member_id, reason in expired.items():
            logger.info("group %s: member %s is removed because %s", group.id, member_id, reason)
        if expired:
            try:
                remove(list(expired))
            except KafkaError as error:  # no longer the leader, or too few replicas: try again
                logger.warning("group %s: expired members could not be removed: %s", group.id, error)
                group.lower_next_deadline(self._store.timestamps().loop_ms + EXPIRY_RETRY_MS)

    def _append(self, group_id: str, records: Sequence[Record]) -> Write | None:
        if not records:
            return self._last_write(group_id)
        write = self._store.append_records(records)
        self._in_flight[group_id] = write, self._store.log_end
        write.add_done_callback(partial(self._on_written, group_id))
        return write

    def _last_write(self, group_id: str) -> Write | None:
        """The group's last write, None once it is replicated. A write that has failed remains the
        last one until it is replicated after all: the group has changed in memory, and what is
        answered must be known to a later coordinator of the group."""
        write, end = self._in_flight.get(group_id, (None, 0))
        if write is not None and write.done() and self._store.is_replicated(end):
            del self._in_flight[group_id]
            return None
        return write

    def append_or_undo(self, change: GroupChange[Any, KeyT, ValueT]) -> Write | None:
        """Like `append`. After a KafkaError the group is as it was before the change."""
        try:
            return self.append(change)
        except KafkaError:
            change.undo()
            raise

    def _encode_all(self, change: GroupChange[Any, KeyT, ValueT]) -> Iterator[Record]:
        now_ms = self._store.timestamps().wall_ms
        for key, value in change.records:
            yield Record(
                now_ms, self._types.encode_key(key), None if value is None else self._types.encode_value(key, value)
            )

    def _on_written(self, group_id: str, write: Write) -> None:
        if self._in_flight.get(group_id, (None, 0))[0] is write and write.result() is ErrorCode.none:
            del self._in_flight[group_id]
