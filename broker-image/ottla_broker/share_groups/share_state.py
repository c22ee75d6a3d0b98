"""The durable state of a share-partition: which records of one partition one share group has
delivered, acknowledged or archived (KIP-932). Pure.

Invariant: `batches` are sorted and disjoint, and lie at or above `start_offset`. Offsets at or
above `start_offset` that are in no batch are delivered as if for the first time: that a record is
acquired is not stored.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from ottla_broker.wire.errors import ErrorCode, KafkaError

NO_START_OFFSET: Final = -1
"""The group has not read the partition yet: `share.auto.offset.reset` decides where it begins."""
UNKNOWN_COUNT: Final = -1


class DeliveryState(IntEnum):
    """The numbers that requests and records use. `acquired` is never stored: a new leader delivers
    such records again. `archiving`: the record's dead letter is not written yet."""

    available = 0
    acquired = 1
    acknowledged = 2
    archiving = 3
    archived = 4


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key in FindCoordinator requests. Its hash selects the partition of
        `__share_group_state`.
        """
        topic = base64.urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic}:{self.partition}"

    def __str__(self) -> str:
        return self.coordinator_key


def parse_coordinator_key(text: str) -> SharePartitionKey | None:
    """None if the text is not a coordinator key."""
    group_id, _, rest = text.rpartition(":")
    group_id, _, topic = group_id.rpartition(":")
    try:
        topic_id = UUID(bytes=base64.urlsafe_b64decode(topic + "=="))
    except (ValueError, binascii.Error):
        return None
    return SharePartitionKey(group_id, topic_id, int(rest)) if group_id and rest.isdecimal() else None


class StateBatch(NamedTuple):
    """Offsets from `first_offset` to `last_offset`, both included, in one DeliveryState."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class StateUpdate(NamedTuple):
    """A change that the partition's leader stores. `start_offset`: NO_START_OFFSET if it does not
    change. `delivery_complete_count`: as in ShareState, after the change. `batches`: those that
    change.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareState:
    """`snapshot_epoch` counts the snapshots of the share-partition. `state_epoch` grows when an
    administrator sets the group's offsets. `leader_epoch`: that of the last leader of the partition
    that read or wrote the state. `delivery_complete_count`: number of records at or above
    `start_offset` that are acknowledged or archived; UNKNOWN_COUNT if it is not known.
    """

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0


STORED_STATES: Final = frozenset(set(DeliveryState) - {DeliveryState.acquired})


def check_batches(batches: Iterable[StateBatch]) -> None:
    """Raises INVALID_REQUEST for a batch that cannot be stored."""
    for one in batches:
        if not 0 <= one.first_offset <= one.last_offset or one.delivery_state not in STORED_STATES:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"offsets {one.first_offset} to {one.last_offset} in state {one.delivery_state}; "
                "ascending offsets in one of the states 0, 2, 3 and 4 are required",
            )


def combine_batches(
    batches: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """The batches after an update. For each offset the larger delivery count wins, and between
    equal counts the later state, as Kafka combines them. An update may arrive a second time, after
    those that followed it, because a leader repeats one whose response it has not received. Offsets
    below `start_offset` are removed.
    """
    merged = list(batches)
    for new in newer:
        kept, added = [], [new]
        for one in merged:
            if _progress(one) > _progress(new):
                kept.append(one)
                added = [rest for part in added for rest in _without(part, one)]
            else:
                kept += _without(one, new)
        merged = kept + added
    merged.sort()
    combined: list[StateBatch] = []
    for batch in merged:
        if batch.last_offset < start_offset:
            continue
        batch = batch._replace(first_offset=max(batch.first_offset, start_offset))
        last = combined[-1] if combined else None
        if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            combined[-1] = last._replace(last_offset=batch.last_offset)
        else:
            combined.append(batch)
    return tuple(combined)


def _progress(one: StateBatch) -> tuple[int, int]:
    return one.delivery_count, one.delivery_state


def _without(old: StateBatch, new: StateBatch) -> list[StateBatch]:
    """The parts of `old` that `new` does not cover."""
    if old.last_offset < new.first_offset or new.last_offset < old.first_offset:
        return [old]
    parts = []
    if old.first_offset < new.first_offset:
        parts.append(old._replace(last_offset=new.first_offset - 1))
    if new.last_offset < old.last_offset:
        parts.append(old._replace(first_offset=new.last_offset + 1))
    return parts
