"""Restores groups and offsets from the records of a partition of `__consumer_offsets`, in steps
between which the caller may yield to the event loop.

Commits inside a transaction are applied with its marker, and lose to a plain commit of the same
partition that came after them (KIP-98): the later *record* wins, not the later marker.
"""

from collections.abc import Iterator
from typing import Any, Final

from ottla_broker.coordination.classic_group import ClassicGroup, restore_group
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import (
    CONSUMER_GROUP_RECORDS,
    ConsumerGroupKey,
    PartitionMetadataKey,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.loading import apply_records
from ottla_broker.coordination.offsets import CommittedOffsets
from ottla_broker.coordination.pending_offsets import PendingOffsets
from ottla_broker.coordination.record_types import RecordTypes
from ottla_broker.coordination.records import (
    GROUP_METADATA,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
    decode_offset_commit,
    decode_value,
)
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.share_group_records import SHARE_GROUP_RECORDS, ShareGroupKey
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.coordination.streams_group_records import STREAMS_GROUP_RECORDS, StreamsGroupKey
from ottla_broker.wire.batch import BatchHeader, Buffer
from ottla_broker.wire.control_records import ControlRecordType, control_record_type
from ottla_broker.wire.records import Record

_NEWER_GROUPS: Final[tuple[tuple[type[Any], RecordTypes[Any, Any], type[Any]], ...]] = (
    (ConsumerGroup, CONSUMER_GROUP_RECORDS, ConsumerGroupKey),
    (ShareGroup, SHARE_GROUP_RECORDS, ShareGroupKey),
    (StreamsGroup, STREAMS_GROUP_RECORDS, StreamsGroupKey),
)
"""Class of the groups, their records, and the key whose tombstone deletes the group."""


class CoordinatorLoader:
    """`record_count`: number of records so far. `unknown_record_count`: number of those with an
    unknown type, which are ignored."""

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config
        self.groups: dict[str, ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup] = {}
        self.offsets = CommittedOffsets()
        self.record_count = 0
        self.unknown_record_count = 0
        self.pending_offsets = PendingOffsets()

    def load_chunk(self, chunk: Buffer) -> Iterator[None]:
        """Applies a chunk of whole batches, some records per step. Raises KafkaError:
        CORRUPT_MESSAGE, with the offset.
        """
        return apply_records(chunk, self._apply)

    def _apply(self, header: BatchHeader, raw_key: bytes | None, raw_value: bytes | None) -> None:
        self.record_count += 1
        if header.is_control:
            return self._end_transaction(header.producer_id, control_record_type(Record(0, raw_key, raw_value)))
        key = None if raw_key is None else decode_key(raw_key)
        if isinstance(key, OffsetCommitKey):
            commit = None if raw_value is None else decode_offset_commit(raw_value)
            if header.is_transactional:
                self.pending_offsets.add(header.producer_id, header.producer_epoch, {key: commit})
            else:
                self.pending_offsets.discard((key,))
                self.offsets.apply(key, commit)
        elif isinstance(key, GroupMetadataKey):
            if raw_value is None:
                if isinstance(self.groups.get(key.group), ClassicGroup):
                    del self.groups[key.group]
            else:
                self.groups[key.group] = restore_group(key.group, self._config, decode_value(GROUP_METADATA, raw_value))
        else:
            for kind, records, last_key in _NEWER_GROUPS:
                if raw_key is not None and (newer_key := records.decode_key(raw_key)) is not None:
                    return self._apply_to_newer_group(kind, records, last_key, newer_key, raw_value)
            self.unknown_record_count += 1
        return None

    def _apply_to_newer_group(
        self, kind: type[Any], records: RecordTypes[Any, Any], last_key: type[Any], key: Any, raw_value: bytes | None
    ) -> None:
        """Ignores a tombstone whose record or group no longer exists: compaction may have removed
        it.
        """
        group: Any = self.groups.get(key.group)
        if not isinstance(group, kind):
            if raw_value is None:
                return
            group = self.groups[key.group] = kind(key.group)
        if raw_value is None and isinstance(key, last_key):
            del self.groups[key.group]
        elif isinstance(key, PartitionMetadataKey):
            group.has_partition_metadata = raw_value is not None
        else:
            group.apply(key, records.decode_value(key, raw_value))

    def _end_transaction(self, producer_id: int, marker: ControlRecordType) -> None:
        commits = self.pending_offsets.end(producer_id)
        if marker is ControlRecordType.commit:
            for key, commit in commits.items():
                self.offsets.apply(key, commit)

    def add_simple_groups(self) -> Iterator[None]:
        """Called after the last record. Creates, also in steps, a group for offsets that a client
        committed without joining one.
        """
        for group in self.offsets.group_ids():
            if group not in self.groups:
                self.groups[group] = ClassicGroup(group, self._config)
                yield
