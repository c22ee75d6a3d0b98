"""The position in a source partition, stored in the appended records themselves. Pure.

Each source of a topic has a producer id that no producer gets. Every batch from the source is
stamped with it, and the header's producer epoch and base sequence store the batch's offset at the
source:

    source offset of the first record = producer epoch · 2³¹ + base sequence

So a batch and its position are one write under one CRC, and they go together through replication,
truncation, compaction (which keeps the last batch of every producer) and the `.snapshot` files
(which store the last batch of every producer). A new leader reads the position from the producer
state of its own log. No other state has to be kept consistent with the log.

Where no record of a source remains, a *position marker* stores the position: a COMMIT marker of a
transaction that never began, with the sequence in its coordinator epoch. Consumers skip it as they
skip every marker. (A batch without records would be valid too, but librdkafka takes one at a log's
end for a record that exceeds the fetch size.)
"""

import struct
from typing import Final

from ottla_broker.log.producer_state import NO_EPOCH, ProducerStateEntry
from ottla_broker.log.validation import HeaderFields
from ottla_broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    DELETE_HORIZON_FLAG,
    HEADER,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
)
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.crc import crc32c

SEQUENCE_BITS: Final = 31
SEQUENCE_COUNT: Final = 1 << SEQUENCE_BITS
SOURCE_OFFSET_LIMIT: Final = 1 << (SEQUENCE_BITS + 15)
"""Source offsets from here on (70 trillion) do not fit into producer epoch and sequence."""

_CRC: Final = struct.Struct(">I")
_MAGIC: Final = 2


def source_position(producer: ProducerStateEntry | None) -> int:
    """Next offset to fetch from a source, by the state of the source's producer id; 0 if the log
    has no record of it.
    """
    if producer is None or producer.epoch == NO_EPOCH:
        return 0
    if producer.batches:
        last = producer.batches[-1]
        return (producer.epoch << SEQUENCE_BITS) + last.first_sequence + last.offset_delta + 1
    return (producer.epoch << SEQUENCE_BITS) + producer.coordinator_epoch + 1


def stamp_source_position(
    batch: memoryview,
    at: int,
    fields: HeaderFields,
    *,
    producer_id: int,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int | None,
) -> None:
    """Rewrites a source's batch header in place for this log: `base_offset`, `leader_epoch`, and
    the source position.

    The batch becomes plain data: its transactional flag and delete horizon are cleared.
    `append_time_ms` is set for LogAppendTime topics. Raises ValueError for a batch that reaches
    SOURCE_OFFSET_LIMIT.
    """
    base, length, _, _, _, attributes, delta, base_timestamp, max_timestamp, _, _, _, count = fields
    if base + delta >= SOURCE_OFFSET_LIMIT:
        raise ValueError(f"source offset {base + delta} is not supported; the limit is {SOURCE_OFFSET_LIMIT}")
    attributes &= ~(TRANSACTIONAL_FLAG | DELETE_HORIZON_FLAG)
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = append_time_ms
    HEADER.pack_into(
        batch, at, base_offset, length, leader_epoch, _MAGIC, 0, attributes, delta, base_timestamp, max_timestamp,
        producer_id, base >> SEQUENCE_BITS, base % SEQUENCE_COUNT, count,
    )  # fmt: skip
    _CRC.pack_into(batch, at + CRC_OFFSET, crc32c(batch[at + ATTRIBUTES_OFFSET : at + length + LOG_OVERHEAD]))


def encode_position_marker(
    producer_id: int, position: int, *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """A marker that stores `position` (above 0) and takes one offset.

    The last batch of the source before it, if there is one, must end at this position too.
    """
    last = position - 1
    return encode_end_transaction_marker(
        True,
        last % SEQUENCE_COUNT,
        producer_id=producer_id,
        producer_epoch=last >> SEQUENCE_BITS,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
