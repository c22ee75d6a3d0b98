"""The transaction of a Produce request: the client's right to it, and the verification of each
partition before its first batch is appended (KIP-890).

A partition in which the producer's transaction is open already needs no verification, so that only
the first request of a transaction to a partition waits. While it waits, the connection serves
nothing else: the batches of a producer keep their order.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from ottla_broker.log.transaction_verification import VerificationGuard
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.reply import Buffers, OrderedResponse, Reply
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.transactions.transaction_metadata import ProducerIdAndEpoch, TxnPartition
from ottla_broker.transactions.verification import TransactionOfProducer
from ottla_broker.wire.batch import HEADER_SIZE, BatchHeader, parse_batch_header
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.produce import ProduceRequest

TRANSACTION_ABORTABLE_SINCE: Final = 11
ADDS_PARTITIONS_SINCE: Final = 12

RETRIABLE: Final = frozenset(
    {
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""Errors of the verification that producers do not expect of a partition's leader."""

Unverified = dict[ProducerIdAndEpoch, list[Partition]]


class RequestTransaction:
    """The transactional batches of one Produce request. `_guards`: of the verifications in
    progress. `_results`: the coordinator's result for each partition that it has verified.
    """

    __slots__ = ("_context", "_guards", "_is_authorized", "_results", "_transactional_id")

    def __init__(self, context: RequestContext, transactional_id: str) -> None:
        self._context = context
        self._transactional_id = transactional_id
        self._is_authorized = context.authorizer.allows_everything or context.is_authorized(
            Operation.write, Resource.transactional_id(transactional_id)
        )
        self._guards: dict[TxnPartition, VerificationGuard] = {}
        self._results: dict[TxnPartition, ErrorCode] = {}

    def find_unverified(self, request: ProduceRequest) -> Unverified:
        """Begins the verification of the partitions in which the request begins a transaction, and
        returns these by producer."""
        found: Unverified = {}
        transactions = self._context.broker.transactions
        if not self._is_authorized or not (self._adds_partitions or transactions.verifies_partitions):
            return found
        partitions = self._context.broker.partitions
        for topic, batches in request.topics:
            name = self._context.broker.image.topic_names.get(topic) if isinstance(topic, UUID) else topic
            for index, records in batches:
                partition = None if name is None else partitions.get(name, index)
                header = None if records is None else read_transactional_header(records)
                if partition is None or not partition.is_leader or header is None:
                    continue  # the append refuses it
                producers = partition.log.producers
                if producers.has_open_transaction(header.producer_id, header.producer_epoch):
                    continue
                if (known := producers.get(header.producer_id)) is not None and header.producer_epoch < known.epoch:
                    continue  # the append refuses it, whatever the coordinator knows
                at = TxnPartition(partition.topic, index)
                self._guards[at] = producers.verifications.begin(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    adds_partition=self._adds_partitions,
                )
                producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
                found.setdefault(producer, []).append(partition)
        return found

    @property
    def _adds_partitions(self) -> bool:
        return self._context.version >= ADDS_PARTITIONS_SINCE

    def verify_and_reply(self, unverified: Unverified, produce: Callable[[], Reply]) -> OrderedResponse:
        """Calls `produce` once the coordinator has answered."""
        loop = asyncio.get_running_loop()
        response = OrderedResponse(loop=loop)

        async def run() -> Buffers:
            for producer, partitions in unverified.items():
                transaction = TransactionOfProducer(self._transactional_id, producer, self._adds_partitions)
                requested = [TxnPartition(partition.topic, partition.partition) for partition in partitions]
                self._results |= await self._context.broker.transactions.verifier.verify(transaction, requested)
            reply = produce()
            if reply is None:
                return []
            return await reply if isinstance(reply, asyncio.Future) else reply

        def finish(task: asyncio.Task[Buffers]) -> None:
            if response.done():
                return
            if task.cancelled():
                response.cancel()
            elif (failure := task.exception()) is not None:
                response.set_exception(failure)
            else:
                response.set_result(task.result())

        loop.create_task(run()).add_done_callback(finish)
        return response

    def check_batch(self, partition: Partition, records: memoryview) -> None:
        """Raises KafkaError, with the partition's error, if the batch may not be appended now."""
        if not self._is_authorized:
            raise KafkaError(ErrorCode.transactional_id_authorization_failed)
        at = TxnPartition(partition.topic, partition.partition)
        if (code := self._results.get(at, ErrorCode.none)) is not ErrorCode.none:
            reason = KafkaError(self._client_error(code), f"the transaction was not verified: {code.name}")
            raise partition.rejected_batches.reject(records, reason)
        header = read_transactional_header(records)
        if header is None or not (self._adds_partitions or self._context.broker.transactions.verifies_partitions):
            return
        partition.log.producers.check_verified(header.producer_id, header.producer_epoch, self._guards.get(at))

    def _client_error(self, code: ErrorCode) -> ErrorCode:
        """The error that the producer gets in place of the coordinator's, as in Kafka."""
        if code in RETRIABLE:
            return ErrorCode.not_enough_replicas  # producers retry on it, and ask for no metadata
        if code is ErrorCode.concurrent_transactions and not self._adds_partitions:
            return ErrorCode.not_enough_replicas
        if code is ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        if code is ErrorCode.cluster_authorization_failed:
            return ErrorCode.invalid_txn_state
        if code is ErrorCode.transaction_abortable and self._context.version < TRANSACTION_ABORTABLE_SINCE:
            return ErrorCode.invalid_txn_state
        return code


def read_transactional_header(records: memoryview) -> BatchHeader | None:
    """The header of a transactional batch. None for another batch, and for bytes that are too few
    to be one, which the log refuses.
    """
    if len(records) < HEADER_SIZE:
        return None
    header = parse_batch_header(records)
    return header if header.is_transactional and header.producer_id >= 0 else None
