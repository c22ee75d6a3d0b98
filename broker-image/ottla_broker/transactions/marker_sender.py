"""Sends the markers of decided transactions to the leaders of their partitions (WriteTxnMarkers),
and repeats them until each leader has acknowledged.

Markers for a broker that are added while a request to it is in flight share the next request.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.transactions.marker_writer import MarkerWriter, TransactionMarker
from ottla_broker.transactions.transaction_metadata import TransactionMetadata, TxnPartition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.02
MAX_PAUSE_S: Final = 1.0
LOG_AFTER_ATTEMPTS: Final = 20

ENDED_OTHERWISE_ERRORS: Final = frozenset(
    {
        # The partition has seen a later epoch of the producer: this transaction has ended there.
        ErrorCode.invalid_producer_epoch,
        # The topic has become a mirror, whose source ends its transactions.
        ErrorCode.invalid_topic_exception,
    }
)


class PendingMarker(NamedTuple):
    """A marker for partitions of one leader. `codes`: completed with the leader's error codes."""

    marker: TransactionMarker
    partitions: tuple[TxnPartition, ...]
    codes: asyncio.Future[dict[TxnPartition, ErrorCode]]


@dataclass(eq=False, repr=False)
class MarkerSender:
    _node_id: int
    _image: MetadataImage
    _writer: MarkerWriter
    _send_request: Callable[[int, Any], Awaitable[Any]]
    _queues: defaultdict[int, list[PendingMarker]] = field(default_factory=lambda: defaultdict(list))
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    _sending: set[int] = field(default_factory=set)

    async def write_markers(self, decided: TransactionMetadata, coordinator_epoch: int) -> None:
        """Returns when each partition of the transaction has its marker, is deleted, or refuses the
        marker because the transaction has ended there otherwise. Waits until it is cancelled if a
        newer coordinator completes the transaction."""
        marker = TransactionMarker(
            decided.producer_id,
            decided.producer_epoch,
            coordinator_epoch,
            decided.commits,
            decided.client_transaction_version,
        )
        remaining, pause_s, attempts = set(decided.partitions), FIRST_PAUSE_S, 0
        while True:
            remaining -= await self._send_to_leaders(marker, remaining)
            if not remaining:
                return
            attempts += 1
            if not attempts % LOG_AFTER_ATTEMPTS:
                examples = ", ".join(f"{one.topic}-{one.partition}" for one in sorted(remaining)[:5])
                logger.warning(
                    "producer %d waits for markers in %d partitions, such as %s",
                    marker.producer_id,
                    len(remaining),
                    examples,
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    async def _send_to_leaders(self, marker: TransactionMarker, wanted: Iterable[TxnPartition]) -> set[TxnPartition]:
        """Returns the partitions that need no marker any more: they have it, are deleted, or the
        transaction has ended there otherwise."""
        finished, by_leader = set(), defaultdict[int, list[TxnPartition]](list)
        for at in sorted(wanted):
            topic = self._image.topics.get(at.topic)
            state = None if topic is None else topic.partitions.get(at.partition)
            if state is None:
                # Deleted: the coordinator's metadata had it when it was added, and a new
                # coordinator's metadata are as new as its leadership.
                finished.add(at)
            elif state.leader != NO_LEADER:
                by_leader[state.leader].append(at)
        results = await asyncio.gather(
            *(self._send_to(leader, marker, tuple(partitions)) for leader, partitions in by_leader.items())
        )
        for codes in results:
            for at, code in codes.items():
                if code is ErrorCode.transaction_coordinator_fenced:
                    logger.info("a newer coordinator completes the transaction of producer %d", marker.producer_id)
                    await asyncio.Event().wait()  # until the shard, which is about to be closed, cancels this
                if code in ENDED_OTHERWISE_ERRORS:
                    logger.warning("%s-%d refuses a marker of producer %d: %s", *at, marker.producer_id, code.name)
                if code is ErrorCode.none or code in ENDED_OTHERWISE_ERRORS:
                    finished.add(at)
        return finished

    async def _send_to(
        self, leader: int, marker: TransactionMarker, partitions: tuple[TxnPartition, ...]
    ) -> dict[TxnPartition, ErrorCode]:
        if leader == self._node_id:
            codes = await asyncio.gather(*(self._writer.write_marker(at, marker) for at in partitions))
            return dict(zip(partitions, codes, strict=True))
        pending = PendingMarker(marker, partitions, asyncio.get_running_loop().create_future())
        self._queues[leader].append(pending)
        if leader not in self._sending:
            self._sending.add(leader)
            self._tasks.start(self._drain(leader))
        return await pending.codes

    async def _drain(self, leader: int) -> None:
        try:
            while batch := self._queues.pop(leader, None):
                codes = await self._request(leader, batch)
                for one in batch:
                    found = codes.get(one.marker.producer_id, {})
                    if not one.codes.done():
                        one.codes.set_result({at: found.get(at, ErrorCode.network_exception) for at in one.partitions})
        finally:
            self._sending.discard(leader)

    async def _request(self, leader: int, batch: list[PendingMarker]) -> dict[int, dict[TxnPartition, ErrorCode]]:
        """Sends the markers. Returns error codes by producer id; empty when the broker does not
        respond.
        """
        try:
            response = await self._send_request(leader, _build_request(batch))
        except (OSError, KafkaError) as reason:
            logger.info("broker %d has not answered a request to write markers: %s", leader, reason)
            return {}
        return {
            int(result.producer_id): {
                TxnPartition(topic.name, int(partition.partition_index)): partition.error_code
                for topic in result.topics
                for partition in topic.partitions
            }
            for result in response.markers
        }

    def close(self) -> None:
        self._tasks.cancel_soon()


def _build_request(batch: list[PendingMarker]) -> Any:
    """A WriteTxnMarkersRequest."""
    # Imported here: these classes would take 4 ms of a broker's start.
    from kio.schema.types import ProducerId, TopicName
    from kio.schema.write_txn_markers.v2.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from kio.static.primitive import i8, i16, i32, i64

    def writable(marker: TransactionMarker, partitions: Iterable[TxnPartition]) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=ProducerId(cast(i64, marker.producer_id)),
            producer_epoch=cast(i16, marker.producer_epoch),
            transaction_result=marker.commit,
            topics=tuple(
                WritableTxnMarkerTopic(
                    name=TopicName(name), partition_indexes=tuple(cast(i32, at.partition) for at in found)
                )
                for name, found in groupby(sorted(partitions), key=lambda at: at.topic)
            ),
            coordinator_epoch=cast(i32, marker.coordinator_epoch),
            transaction_version=cast(i8, marker.transaction_version),
        )

    return WriteTxnMarkersRequest(markers=tuple(writable(one.marker, one.partitions) for one in batch))
