"""Restores groups and offsets from the records of a partition of `__consumer_offsets`, in steps
between which the caller may yield to the event loop.

Commits inside a transaction are applied with its marker, and lose to a plain commit of the same
partition that came after them (KIP-98): the later *record* wins, not the later marker.
"""

from collections.abc import Iterator

from ottla_broker.coordination.classic_group import ClassicGroup, restore_group
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_records import (
    CONSUMER_GROUP_RECORDS,
    ConsumerGroupKey,
    ConsumerGroupRecordKey,
    PartitionMetadataKey,
)
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.loading import apply_records
from ottla_broker.coordination.offsets import CommittedOffsets
from ottla_broker.coordination.pending_offsets import PendingOffsets
from ottla_broker.coordination.records import (
    GROUP_METADATA,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
    decode_offset_commit,
    decode_value,
)
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.share_group_records import SHARE_GROUP_RECORDS, ShareGroupKey, ShareGroupRecordKey
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.coordination.streams_group_records import STREAMS_GROUP_RECORDS, StreamsGroupKey, StreamsRecordKey
from ottla_broker.wire.batch import BatchHeader, Buffer
from ottla_broker.wire.control_records import ControlRecordType, control_record_type
from ottla_broker.wire.records import Record


class CoordinatorLoader:
    """Counts `records` in all, and `unknown_records` of other types of groups."""

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config
        self.groups: dict[str, ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup] = {}
        self.offsets = CommittedOffsets()
        self.records = 0
        self.unknown_records = 0
        self.pending_offsets = PendingOffsets()

    def load_chunk(self, chunk: Buffer) -> Iterator[None]:
        """Applies a chunk of whole batches, some records per step. Raises KafkaError:
        CORRUPT_MESSAGE, with the offset.
        """
        return apply_records(chunk, self._apply)

    def _apply(self, header: BatchHeader, raw_key: bytes | None, raw_value: bytes | None) -> None:
        self.records += 1
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
        elif raw_key is not None and (consumer_key := CONSUMER_GROUP_RECORDS.decode_key(raw_key)) is not None:
            self._apply_to_consumer_group(consumer_key, raw_value)
        elif raw_key is not None and (share_key := SHARE_GROUP_RECORDS.decode_key(raw_key)) is not None:
            self._apply_to_share_group(share_key, raw_value)
        elif raw_key is not None and (streams_key := STREAMS_GROUP_RECORDS.decode_key(raw_key)) is not None:
            self._apply_to_streams_group(streams_key, raw_value)
        else:
            self.unknown_records += 1
        return None

    def _apply_to_consumer_group(self, key: ConsumerGroupRecordKey, raw_value: bytes | None) -> None:
        """Ignores a tombstone whose record or group no longer exists: compaction may have removed
        it.
        """
        group = self.groups.get(key.group)
        if not isinstance(group, ConsumerGroup):
            if raw_value is None:
                return
            group = self.groups[key.group] = ConsumerGroup(key.group)
        if raw_value is None and isinstance(key, ConsumerGroupKey):
            del self.groups[key.group]
            return
        if isinstance(key, PartitionMetadataKey):
            group.has_partition_metadata = raw_value is not None
        else:
            group.apply(key, CONSUMER_GROUP_RECORDS.decode_value(key, raw_value))

    def _apply_to_share_group(self, key: ShareGroupRecordKey, raw_value: bytes | None) -> None:
        """Like `_apply_to_consumer_group`."""
        group = self.groups.get(key.group)
        if not isinstance(group, ShareGroup):
            if raw_value is None:
                return
            group = self.groups[key.group] = ShareGroup(key.group)
        if raw_value is None and isinstance(key, ShareGroupKey):
            del self.groups[key.group]
            return
        group.apply(key, SHARE_GROUP_RECORDS.decode_value(key, raw_value))

    def _apply_to_streams_group(self, key: StreamsRecordKey, raw_value: bytes | None) -> None:
        """Like `_apply_to_consumer_group`. The topology's tombstone is the last of a group."""
        group = self.groups.get(key.group)
        if not isinstance(group, StreamsGroup):
            if raw_value is None:
                return
            group = self.groups[key.group] = StreamsGroup(key.group)
        if raw_value is None and isinstance(key, StreamsGroupKey):
            del self.groups[key.group]
            return
        group.apply(key, STREAMS_GROUP_RECORDS.decode_value(key, raw_value))

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
