"""From the records of a partition of `__consumer_offsets` back to groups and offsets. Synchronous and record by
record, so that who loads can stop for breath between any two.

Commits inside a transaction wait for its marker, and lose to a plain commit of the same partition that came after them
(KIP-98): the later *record* wins, not the later marker.
"""

from collections.abc import Iterator

from ottla_broker.coordination.classic_group import ClassicGroup, restored
from ottla_broker.coordination.offsets import Offsets
from ottla_broker.coordination.records import (
    GROUP_METADATA,
    GroupMetadataKey,
    OffsetCommit,
    OffsetCommitKey,
    decode_key,
    decode_offset_commit,
    decode_value,
)
from ottla_broker.coordination.schema import Malformed
from ottla_broker.wire.batch import BatchHeader, Buffer, has_valid_crc, iter_batches
from ottla_broker.wire.control_records import ControlRecordType, control_record_type
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, decompress_records, iter_record_spans

RECORDS_PER_STEP = 64


class CoordinatorLoader:
    """Counts what it saw: `records` in all, `unknown` of types that are not ours to read."""

    def __init__(self) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.records = 0
        self.unknown_records = 0
        self._open: dict[
            int, dict[OffsetCommitKey, OffsetCommit | None]
        ] = {}  # producer id → its transaction's commits

    def steps(self, chunk: Buffer) -> Iterator[None]:
        """Applies a chunk of whole batches, some records per step. KafkaError CORRUPT_MESSAGE names the offset."""
        for at, header in iter_batches(chunk):
            if not has_valid_crc(chunk, header, at):
                raise KafkaError(ErrorCode.corrupt_message, f"CRC of the batch at offset {header.base_offset} is wrong")
            delta = 0  # of the record at hand
            try:
                for _, _, _, at_delta, key, value, _ in iter_record_spans(
                    decompress_records(chunk, header, at), header.count
                ):
                    delta = at_delta
                    self._apply(header, key, value)
                    self.records += 1
                    if not self.records % RECORDS_PER_STEP:
                        yield
            except Malformed as reason:
                where = f"record at offset {header.base_offset + delta}"
                raise KafkaError(ErrorCode.corrupt_message, f"{where}: {reason}") from reason

    def _apply(self, header: BatchHeader, raw_key: bytes | None, raw_value: bytes | None) -> None:
        if header.is_control:
            return self._end_transaction(header.producer_id, control_record_type(Record(0, raw_key, raw_value)))
        key = None if raw_key is None else decode_key(raw_key)
        if isinstance(key, OffsetCommitKey):
            commit = None if raw_value is None else decode_offset_commit(raw_value)
            if header.is_transactional:
                self._open.setdefault(header.producer_id, {})[key] = commit
            else:
                if self._open:
                    for commits in self._open.values():
                        commits.pop(key, None)
                self._commit(key, commit)
        elif isinstance(key, GroupMetadataKey):
            if raw_value is None:
                self.groups.pop(key.group, None)
            else:
                self.groups[key.group] = restored(key.group, decode_value(GROUP_METADATA, raw_value))
        else:
            self.unknown_records += 1
        return None

    def _commit(self, key: OffsetCommitKey, commit: OffsetCommit | None) -> None:
        if commit is None:
            self.offsets.remove(key)
        else:
            self.offsets.put(key, commit)

    def _end_transaction(self, producer_id: int, how: ControlRecordType) -> None:
        commits = self._open.pop(producer_id, {})
        if how is ControlRecordType.commit:
            for key, commit in commits.items():
                self._commit(key, commit)

    def finish(self) -> Iterator[None]:
        """After the last record: offsets without a group get one, for somebody commits who never joined. In steps
        too."""
        for group in self.offsets.groups():
            if group not in self.groups:
                self.groups[group] = ClassicGroup(group)
                yield
