"""How far a source was copied, carried by the copied records themselves where their offsets are new. Pure.

Each source of a topic has a producer id of its own, which no producer has. Every batch that is copied from it is marked as that producer's, and what
Kafka's format has for a producer's epoch and sequence says where the batch lay at the source:

    offset of its first record there = epoch · 2³¹ + base sequence

So a batch and the position behind it are one write, checked by one CRC, and go the same way: to followers, over truncations, through compaction, which
keeps the last batch of every producer, into the `.snapshot` files, which hold each producer's last batch. Who leads next finds the position where it
looks for producers' sequences: in what is rebuilt from its own log. Nothing else has to be kept in step with the log, so nothing can be out of step.

Where no record of the source is left to carry it, a marker does (`statement`): that the source's producer has committed a transaction, which never began;
what Kafka's format has for its coordinator's epoch stands for the sequence then. Readers pass over it, as over every marker. (A batch without records would
do in Kafka's eyes, but librdkafka takes one at a log's end for a record that is too large for it.)
"""

import struct
from typing import Final

from crc32c import crc32c

from ottla_broker.log.producer_state import NO_EPOCH, ProducerStateEntry
from ottla_broker.log.validation import HeaderFields
from ottla_broker.wire.batch import (
    ATTRIBUTES_OFFSET,
    DELETE_HORIZON_FLAG,
    HEADER,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    TRANSACTIONAL_FLAG,
)
from ottla_broker.wire.control_records import encode_end_transaction_marker

SEQUENCE_BITS: Final = 31
SEQUENCE_COUNT: Final = 1 << SEQUENCE_BITS
SOURCE_OFFSET_LIMIT: Final = 1 << (SEQUENCE_BITS + 15)
"""Offsets of a source that can be carried are below this one: 70 trillion."""

_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_MAGIC: Final = 2


def source_position(producer: ProducerStateEntry | None) -> int:
    """The offset of the source that is wanted next, by what a log says of the source's producer; 0 when it says nothing."""
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
    """Makes a batch of the source's, in place, one of this log's: at offset `base_offset`, marked with where it lay. It is plain data then, no part of a
    transaction, and no tombstone of it is due before this log's own time. `append_time_ms`: for topics of LogAppendTime. ValueError from `END` on."""
    base, length, _, _, _, attributes, delta, base_timestamp, max_timestamp, _, _, _, count = fields
    if base + delta >= SOURCE_OFFSET_LIMIT:
        raise ValueError(f"offset {base + delta}: those that can be carried are below {SOURCE_OFFSET_LIMIT}")
    attributes &= ~(TRANSACTIONAL_FLAG | DELETE_HORIZON_FLAG)
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = append_time_ms
    HEADER.pack_into(
        batch, at, base_offset, length, leader_epoch, _MAGIC, 0, attributes, delta, base_timestamp, max_timestamp,
        producer_id, base >> SEQUENCE_BITS, base % SEQUENCE_COUNT, count,
    )  # fmt: skip
    _CRC.pack_into(batch, at + _CRC_AT, crc32c(batch[at + ATTRIBUTES_OFFSET : at + length + LOG_OVERHEAD]))


def encode_position_marker(
    producer_id: int, position: int, *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """A marker that says of a source: this offset (above 0) is wanted next. It takes one offset of the log. There must not be a batch of the source's
    before it that says anything else."""
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
