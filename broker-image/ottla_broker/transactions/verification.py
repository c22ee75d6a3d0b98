"""Verifies at the transaction coordinator that a producer's transaction contains partitions that
this broker leads (KIP-890, part 1), or adds them to it (part 2).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import msgspec

from ottla_broker.coordination.records import TRANSACTION_STATE_TOPIC, coordinator_partition
from ottla_broker.log.producer_state import EPOCH_BUMP_VERSION
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TxnPartition
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class TransactionOfProducer(msgspec.Struct, frozen=True):
    """`adds_partitions`: transaction version 2, in which a batch itself adds its partition to the
    transaction."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    adds_partitions: bool


@dataclass(eq=False, repr=False)
class TransactionVerifier:
    """`_concurrent_wait_ms`: how long a partition that is to be added waits for the end of the
    producer's previous transaction."""

    _node_id: int
    _image: MetadataImage
    _coordinator: TransactionCoordinator
    _send_request: Callable[[int, Any], Awaitable[Any]]
    _concurrent_wait_ms: Callable[[], int]
    _retry_pause_ms: Callable[[], int]

    async def verify(
        self, transaction: TransactionOfProducer, partitions: Sequence[TxnPartition]
    ) -> dict[TxnPartition, ErrorCode]:
        """Adds the partitions if `transaction.adds_partitions`. Returns the result for each of
        them: `none` if it is in the transaction."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._concurrent_wait_ms() / 1000
        while True:
            codes = await self._verify_at_coordinator(transaction, partitions)
            is_concurrent = ErrorCode.concurrent_transactions in codes.values()
            if not (transaction.adds_partitions and is_concurrent) or loop.time() >= until_s:
                return codes
            await asyncio.sleep(self._retry_pause_ms() / 1000)

    async def _verify_at_coordinator(
        self, transaction: TransactionOfProducer, partitions: Sequence[TxnPartition]
    ) -> dict[TxnPartition, ErrorCode]:
        topic = self._image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        at = coordinator_partition(transaction.transactional_id, len(topic.partitions))
        leader = topic.partitions[at].leader
        if leader == self._node_id:
            return await self._verify_locally(transaction, partitions)
        if leader == NO_LEADER:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        return await self._verify_at_broker(leader, transaction, partitions)

    async def _verify_locally(
        self, transaction: TransactionOfProducer, partitions: Sequence[TxnPartition]
    ) -> dict[TxnPartition, ErrorCode]:
        coordinator, transactional_id = self._coordinator, transaction.transactional_id
        try:
            if transaction.adds_partitions:
                await coordinator.add_partitions(
                    transactional_id, transaction.producer, partitions, client_version=EPOCH_BUMP_VERSION
                )
                missing: frozenset[TxnPartition] = frozenset()
            else:
                missing = coordinator.find_missing_partitions(transactional_id, transaction.producer, partitions)
        except KafkaError as reason:
            return dict.fromkeys(partitions, reason.code)
        return {one: ErrorCode.transaction_abortable if one in missing else ErrorCode.none for one in partitions}

    async def _verify_at_broker(
        self, leader: int, transaction: TransactionOfProducer, partitions: Sequence[TxnPartition]
    ) -> dict[TxnPartition, ErrorCode]:
        # Imported here: these classes would take 4 ms of a broker's start.
        from kio.schema.add_partitions_to_txn.v5.request import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )
        from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse
        from kio.schema.types import ProducerId, TopicName, TransactionalId
        from kio.static.primitive import i16, i32, i64

        request = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id=TransactionalId(transaction.transactional_id),
                    producer_id=ProducerId(cast(i64, transaction.producer.producer_id)),
                    producer_epoch=cast(i16, transaction.producer.epoch),
                    verify_only=not transaction.adds_partitions,
                    topics=tuple(
                        AddPartitionsToTxnTopic(
                            name=TopicName(name), partitions=tuple(cast(i32, one.partition) for one in found)
                        )
                        for name, found in groupby(sorted(partitions), key=lambda one: one.topic)
                    ),
                ),
            )
        )
        try:
            response: AddPartitionsToTxnResponse = await self._send_request(leader, request)
        except (OSError, KafkaError) as reason:
            logger.info("broker %d, the transaction coordinator, has not answered: %s", leader, reason)
            return dict.fromkeys(partitions, ErrorCode.network_exception)
        if response.error_code is not ErrorCode.none:
            return dict.fromkeys(partitions, response.error_code)
        codes = {
            TxnPartition(topic.name, int(result.partition_index)): result.partition_error_code
            for found in response.results_by_transaction
            for topic in found.topic_results
            for result in topic.results_by_partition
        }
        return {one: codes.get(one, ErrorCode.unknown_server_error) for one in partitions}
