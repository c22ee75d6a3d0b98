"""The records of `__transaction_state`, in Kafka's own formats.

Source: `transaction-coordinator/src/main/resources/common/message/*.json` of Apache Kafka 4.1. A
key begins with its type as i16, a value with its version as i16; a null value is a tombstone. Keys
of other types are ignored (KIP-915). Version 1 of the value is flexible: its tagged fields serve
transaction version 2 (KIP-890).
"""

import struct
from itertools import groupby
from typing import Final, NamedTuple

from ottla_broker.coordination.record_format import Field, RecordFormat
from ottla_broker.coordination.records import decode_value
from ottla_broker.transactions.transaction_metadata import (
    NO_PRODUCER_EPOCH,
    TransactionMetadata,
    TransactionState,
    TxnPartition,
)
from ottla_broker.wire.batch import NO_PRODUCER_ID
from ottla_broker.wire.message_reader import MalformedMessage

TRANSACTION_KEY_TYPE: Final = 0
FLEXIBLE_VERSION: Final = 1
_INT16: Final = struct.Struct(">h")
_KNOWN_STATES: Final = frozenset(TransactionState)


class TransactionLogKey(NamedTuple):
    transactional_id: str


class PartitionsOfTopic(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class TransactionLogValue(NamedTuple):
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: int
    partitions: tuple[PartitionsOfTopic, ...] | None
    last_update_ms: int
    start_ms: int
    client_transaction_version: int


TRANSACTION_LOG_KEY: Final = RecordFormat(TransactionLogKey, [Field("string")], latest=0)
PARTITIONS_OF_TOPIC: Final = RecordFormat(
    PartitionsOfTopic, [Field("string"), Field("int32", array=True)], latest=1, flexible_from=1
)
TRANSACTION_LOG_VALUE: Final = RecordFormat(
    TransactionLogValue,
    [
        Field("int64"),
        Field("int64", since=1, default=NO_PRODUCER_ID, tag=0),
        Field("int64", since=1, default=NO_PRODUCER_ID, tag=1),
        Field("int16"),
        Field("int32"),
        Field("int8"),
        Field(PARTITIONS_OF_TOPIC, nullable=True),
        Field("int64"),
        Field("int64"),
        Field("int16", since=1, default=0, tag=2),
    ],
    latest=1,
    flexible_from=1,
)


def encode_transaction_key(transactional_id: str) -> bytes:
    raw = transactional_id.encode()
    return _INT16.pack(TRANSACTION_KEY_TYPE) + _INT16.pack(len(raw)) + raw


def decode_transaction_key(key: bytes) -> str | None:
    """The transactional id; None for a record of another type. Raises MalformedMessage."""
    if len(key) < _INT16.size:
        raise MalformedMessage(f"a key of {len(key)} bytes has no type")
    if _INT16.unpack_from(key)[0] != TRANSACTION_KEY_TYPE:
        return None
    return TRANSACTION_LOG_KEY.read(key, _INT16.size, 0).transactional_id


def encode_transaction(metadata: TransactionMetadata, *, version: int = FLEXIBLE_VERSION) -> bytes:
    """The record's value. In the state Empty its partitions are null, as Kafka writes them."""
    by_topic = groupby(sorted(metadata.partitions), key=lambda one: one[0])
    partitions = tuple(PartitionsOfTopic(topic, tuple(index for _, index in found)) for topic, found in by_topic)
    value = TransactionLogValue(
        metadata.producer_id,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state,
        None if metadata.state is TransactionState.empty else partitions,
        metadata.last_update_ms,
        metadata.start_ms,
        metadata.client_transaction_version,
    )
    return TRANSACTION_LOG_VALUE.write(value, version)


def decode_transaction(value: bytes) -> TransactionMetadata:
    """Raises MalformedMessage, also for an unknown version or state: ignoring it would lose a
    transaction."""
    found = decode_value(TRANSACTION_LOG_VALUE, value)
    if found.state not in _KNOWN_STATES:
        raise MalformedMessage(f"transaction state {found.state} is unknown")
    partitions = frozenset(TxnPartition(topic, index) for topic, indexes in found.partitions or () for index in indexes)
    return TransactionMetadata(
        found.producer_id,
        found.producer_epoch,
        found.timeout_ms,
        state=TransactionState(found.state),
        partitions=partitions,
        start_ms=found.start_ms,
        last_update_ms=found.last_update_ms,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        client_transaction_version=found.client_transaction_version,
    )
