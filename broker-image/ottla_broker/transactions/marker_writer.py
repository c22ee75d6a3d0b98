"""Writes end transaction markers to partitions that this broker leads.

A marker may arrive more than once, because coordinators repeat it until it is acknowledged. With
transaction version 2 a marker that is in the log is not written again; like every marker it is
acknowledged when it is replicated.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.records import OFFSETS_TOPIC
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.runtime import Runtime
from ottla_broker.transactions.transaction_metadata import TxnPartition
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode, KafkaError

WRITE_TIMEOUT_S: Final = 10.0


class TransactionMarker(NamedTuple):
    """What a transaction coordinator sends to the partitions of a transaction to end it.

    `producer_epoch`: larger than that of the transaction's batches with transaction version 2, and
    with either version if the coordinator has fenced the producer. `coordinator_epoch`: the leader
    epoch of the coordinator's partition; a partition refuses markers of a smaller epoch, which a
    former coordinator sends.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int


@dataclass(eq=False, repr=False)
class MarkerWriter:
    _image: MetadataImage
    _partitions: Partitions
    _runtime: Runtime
    _groups: GroupCoordinator

    async def write_marker(self, at: TxnPartition, marker: TransactionMarker) -> ErrorCode:
        """Returns `none` when the marker is replicated, or the error that prevents it."""
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._write(at, marker)
        except KafkaError as reason:
            return reason.code
        except TimeoutError:
            return ErrorCode.request_timed_out
        return ErrorCode.none

    async def _write(self, at: TxnPartition, marker: TransactionMarker) -> None:
        partition = self._partitions.leader(at.topic, at.partition)
        if self._image.mirrored_topics and not self._image.is_writable(partition.topic_id, partition.partition):
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"{partition!r} is a mirror: its source ends transactions"
            )
        is_written = partition.log.producers.is_end_written(
            marker.producer_id, marker.producer_epoch, marker.transaction_version
        )
        is_offsets_topic = at.topic == OFFSETS_TOPIC
        # A write that was given up may be in the log without having ended the offsets' transaction.
        if is_written and not (
            is_offsets_topic and self._groups.has_open_transaction(at.partition, marker.producer_id)
        ):
            await self._wait_until_replicated(partition)
        elif is_offsets_topic:
            await self._groups.complete_transaction(
                at.partition,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                commit=marker.commit,
            )
        else:
            await self._append(partition, marker)

    async def _append(self, partition: Partition, marker: TransactionMarker) -> None:
        batch = encode_end_transaction_marker(
            marker.commit,
            marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._runtime.now_ms(),
            is_log_append_time=partition.log.config.message_timestamp_type == "LogAppendTime",
        )
        appended = partition.append_records(batch, acks=ALL_REPLICAS, from_client=False)
        if (waiting := partition.commit_future(appended)) is not None:
            await waiting

    async def _wait_until_replicated(self, partition: Partition) -> None:
        end = partition.log.end
        await partition.wait_in_epoch(partition.read_waiters, lambda: partition.log.high_watermark >= end)
