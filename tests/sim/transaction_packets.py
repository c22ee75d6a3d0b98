"""Transactional batches and end markers in the segments of connections, and the state of their
transactions at the receivers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kio.schema.produce.v11.request import ProduceRequest
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

from ottla_broker.log.producer_state import NO_OFFSET
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TxnPartition
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import parse_batch_header
from ottla_broker.wire.codec import read_request
from ottla_broker.wire.request_header import read_request_header
from tests.sim.cluster import SimulatedBroker
from tests.sim.triggered_faults import api_key

PRODUCE_VERSION = 11  # which the simulated producers use in transaction version 1
SIZE_BYTES, HEADER_BYTES = 4, 10
TRANSACTIONAL_HOSTS = ("txn-", "worker-")  # prefixes of the hosts of transactional clients


@dataclass(frozen=True, slots=True)
class SentMarker:
    """A marker on its way to one partition. `first_offset`: that of the transaction that it ends,
    `NO_OFFSET` if the leader has no record of it."""

    leader: SimulatedBroker
    at: TxnPartition
    producer_id: int
    first_offset: int

    def has_next_transaction(self) -> bool:
        """True if the producer's next transaction is open in the partition."""
        return find_open_transaction_offset(self.leader, self.at, self.producer_id) > self.first_offset


class SentBatch(NamedTuple):
    """A batch of transaction version 1 on its way to one partition."""

    transactional_id: str
    at: TxnPartition
    producer: ProducerIdAndEpoch
    base_sequence: int


def find_open_transaction_offset(leader: SimulatedBroker, at: TxnPartition, producer_id: int) -> int:
    """First offset of the producer's open transaction in the partition, `NO_OFFSET` if there is
    none."""
    partition = None if leader.broker is None else leader.broker.partitions.get(*at)
    producer = None if partition is None else partition.log.producers.get(producer_id)
    return NO_OFFSET if producer is None else producer.current_txn_first_offset


def find_sent_markers(leader: SimulatedBroker, markers: Sequence[WritableTxnMarker]) -> Iterator[SentMarker]:
    for marker in markers:
        for topic in marker.topics:
            for partition in topic.partition_indexes:
                at, producer_id = TxnPartition(topic.name, int(partition)), int(marker.producer_id)
                yield SentMarker(leader, at, producer_id, find_open_transaction_offset(leader, at, producer_id))


def read_markers(piece: bytes) -> Sequence[WritableTxnMarker]:
    """The markers in a segment that is a whole request to write some; empty for any other
    segment.
    """
    if not _is_request(piece, ApiKey.WRITE_TXN_MARKERS):
        return ()
    frame = piece[SIZE_BYTES:]
    request: WriteTxnMarkersRequest = read_request(frame, read_request_header(frame), WriteTxnMarkersRequest)
    return request.markers


def read_transactional_batch(piece: bytes) -> SentBatch | None:
    """The batch in a segment that is a whole request to produce it in transaction version 1.
    None for any other segment.
    """
    if not _is_request(piece, ApiKey.PRODUCE):
        return None
    frame = piece[SIZE_BYTES:]
    header = read_request_header(frame)
    if header.version != PRODUCE_VERSION:
        return None
    request: ProduceRequest = read_request(frame, header, ProduceRequest)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    if request.transactional_id is None or partition.records is None:
        return None
    batch = parse_batch_header(partition.records)
    return SentBatch(
        request.transactional_id,
        TxnPartition(topic.name, int(partition.index)),
        ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch),
        batch.base_sequence,
    )


def _is_request(piece: bytes, key: ApiKey) -> bool:
    size = len(piece) - SIZE_BYTES  # less than that of a header where a segment was split
    return api_key(piece) == key and size == int.from_bytes(piece[:SIZE_BYTES]) and size > HEADER_BYTES
