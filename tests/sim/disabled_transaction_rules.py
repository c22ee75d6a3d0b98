"""Rules of transactions (docs/transactions.md), each disabled on purpose: checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from ottla_broker.coordination import group_coordinator
from ottla_broker.coordination.coordinator_shard import GroupCoordinatorShard
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey
from ottla_broker.log.indexes import AbortedTransaction, TransactionIndex
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.transactions import transaction_metadata, transaction_shard
from ottla_broker.transactions.marker_sender import MarkerSender
from ottla_broker.transactions.marker_writer import MarkerWriter, TransactionMarker
from ottla_broker.transactions.transaction_metadata import (
    MAX_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
    TxnPartition,
)
from ottla_broker.transactions.transaction_shard import TransactionShard
from ottla_broker.transactions.transactions import Transactions
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.sim.disabled_rules import producer_state_lost_on_restart

MAX_COORDINATOR_EPOCH = (1 << 31) - 1


@contextmanager
def zombies_not_fenced_by_coordinator() -> Iterator[None]:
    """The coordinator does not compare the producer's epoch."""

    def check(current: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        if current is None or current.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        return current

    with patch.object(transaction_metadata, "_check_producer", check):
        yield


@contextmanager
def new_instance_keeps_epoch() -> Iterator[None]:
    """InitProducerId gives a new instance the epoch of the former one."""

    def next_epochs(current: TransactionMetadata, _: ProducerIdAndEpoch | None) -> tuple[int, int]:
        return current.producer_epoch, current.last_producer_epoch

    with patch.object(transaction_metadata, "_next_epochs", next_epochs):
        yield


@contextmanager
def markers_without_epoch_check() -> Iterator[None]:
    """A partition does not compare the producer epoch of a marker (KAFKA-19999, KIP-1228)."""

    def check(states: ProducerStates, producer_id: int, _: int, coordinator_epoch: int) -> None:
        original(states, producer_id, MAX_EPOCH, coordinator_epoch)

    original = ProducerStates.check_marker
    with patch.object(ProducerStates, "check_marker", check), markers_with_epoch_of_open_transaction_accepted():
        yield


@contextmanager
def markers_with_epoch_of_open_transaction_accepted() -> Iterator[None]:
    """As before KIP-1228, a marker of transaction version 2 may have the epoch of the open
    transaction. A late marker of the previous transaction has that epoch."""
    with patch.object(ProducerStates, "is_end_written", lambda *_: False):
        yield


@contextmanager
def markers_of_former_coordinators_accepted() -> Iterator[None]:
    """A partition does not compare the coordinator epoch of a marker."""

    def check(states: ProducerStates, producer_id: int, epoch: int, _: int) -> None:
        original(states, producer_id, epoch, MAX_COORDINATOR_EPOCH)

    original = ProducerStates.check_marker
    with patch.object(ProducerStates, "check_marker", check):
        yield


@contextmanager
def last_stable_offset_is_high_watermark() -> Iterator[None]:
    """Open transactions do not hold readers back."""
    with patch.object(PartitionLog, "last_stable_offset", property(lambda log: log.high_watermark)):
        yield


@contextmanager
def decision_forgotten_on_takeover() -> Iterator[None]:
    """A coordinator that takes over does not complete a commit that another one has decided."""

    def apply_record(shard: TransactionShard, header: Any, key: bytes | None, value: bytes | None) -> None:
        before = dict(shard.entries)
        original(shard, header, key, value)
        for transactional_id, entry in shard.entries.items():
            if entry.metadata is not None and entry.metadata.state is TransactionState.prepare_commit:
                shard.entries[transactional_id] = before.get(transactional_id, entry)

    original = TransactionShard._apply_record
    with patch.object(TransactionShard, "_apply_record", apply_record):
        yield


@contextmanager
def answer_before_decision_is_replicated() -> Iterator[None]:
    """EndTxn is answered when the decision is in the coordinator's own log."""

    async def transition(
        shard: TransactionShard, transactional_id: str, decide: transaction_shard.Decide
    ) -> TransactionMetadata:
        decided: list[TransactionMetadata] = []

        def observe(current: TransactionMetadata | None) -> TransactionMetadata:
            decided.append(decide(current))
            return decided[-1]

        waiting = asyncio.ensure_future(original(shard, transactional_id, observe))
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)
        if not waiting.done() and decided and decided[-1].state in transaction_metadata.DECIDED_STATES:
            return decided[-1]
        return await waiting

    original = TransactionShard.transition
    with patch.object(TransactionShard, "transition", transition):
        yield


@contextmanager
def offsets_count_before_commit() -> Iterator[None]:
    """A transaction's offsets count when they are written, also if it aborts."""

    async def commit(
        shard: GroupCoordinatorShard,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        commits: Mapping[OffsetCommitKey, OffsetCommit],
    ) -> None:
        await original(shard, group_id, producer_id, producer_epoch, commits)
        for key, one in commits.items():
            shard.offsets.apply(key, one)

    original = GroupCoordinatorShard.commit_transactional_offsets
    with patch.object(GroupCoordinatorShard, "commit_transactional_offsets", commit):
        yield


@contextmanager
def unstable_offsets_served() -> Iterator[None]:
    """A consumer gets the last offset although an open transaction has a later one (KIP-447)."""
    with patch.object(GroupCoordinator, "has_pending_offset", lambda *_: False):
        yield


@contextmanager
def generation_of_transactional_commit_not_checked() -> Iterator[None]:
    """A former member of a group commits offsets in its transaction (KIP-447)."""
    with patch.object(group_coordinator, "check_transactional_commit", lambda *_: None):
        yield


@contextmanager
def partitions_not_verified() -> Iterator[None]:
    """A partition accepts batches of transactions that do not contain it (KIP-890, part 1)."""
    with (
        patch.object(Transactions, "verifies_partitions", property(lambda _: False)),
        patch.object(ProducerStates, "check_verified", lambda *_: None),
    ):
        yield


@contextmanager
def markers_to_some_partitions_only() -> Iterator[None]:
    """A transaction is complete when one of its partitions has the marker."""

    async def send(sender: MarkerSender, marker: TransactionMarker, wanted: Any) -> set[TxnPartition]:
        finished = await original(sender, marker, sorted(wanted)[:1])
        return set(wanted) if finished else finished

    original = MarkerSender._send_to_leaders
    with patch.object(MarkerSender, "_send_to_leaders", send):
        yield


@contextmanager
def decided_transactions_aborted_on_takeover() -> Iterator[None]:
    """A coordinator that takes over aborts transactions whose commit was decided."""

    def apply_record(shard: TransactionShard, header: Any, key: bytes | None, value: bytes | None) -> None:
        original(shard, header, key, value)
        for entry in shard.entries.values():
            if entry.metadata is not None and entry.metadata.state is TransactionState.prepare_commit:
                entry.metadata = replace(entry.metadata, state=TransactionState.prepare_abort)

    original = TransactionShard._apply_record
    with patch.object(TransactionShard, "_apply_record", apply_record):
        yield


@contextmanager
def aborted_transactions_not_indexed() -> Iterator[None]:
    """Responses to readers do not list aborted transactions."""
    with patch.object(TransactionIndex, "append", lambda *_: None):
        yield


@contextmanager
def aborted_transactions_end_at_segment_seam() -> Iterator[None]:
    """Responses to readers list only aborted transactions whose marker is in the segment that the
    first record is in."""

    def aborted_transactions(log: PartitionLog, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        segment = next(iter(log.segments.from_offset(from_offset)))
        return [one for one in original(log, from_offset, to_offset) if one in segment.transactions.entries()]

    original = PartitionLog.aborted_transactions
    with patch.object(PartitionLog, "aborted_transactions", aborted_transactions):
        yield


@contextmanager
def markers_acknowledged_before_replication() -> Iterator[None]:
    """A marker counts as written when the leader alone has it."""

    async def append(writer: MarkerWriter, partition: Any, marker: TransactionMarker) -> None:
        with patch.object(type(partition), "commit_future", lambda *_: None):
            await original(writer, partition, marker)

    original: Callable[..., Awaitable[None]] = MarkerWriter._append
    with patch.object(MarkerWriter, "_append", append):
        yield


@contextmanager
def unreplicated_markers_end_transactions() -> Iterator[None]:
    """The last stable offset passes a transaction before its marker is replicated."""

    def apply(states: ProducerStates, *arguments: Any, **named: Any) -> Any:
        found = original(states, *arguments, **named)
        states._unreplicated_txns.clear()
        return found

    original = ProducerStates.apply_marker
    with patch.object(ProducerStates, "apply_marker", apply):
        yield


@contextmanager
def open_transactions_forgotten_on_restart() -> Iterator[None]:
    """A broker that starts again knows no open transaction."""
    with producer_state_lost_on_restart():
        yield


RULES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        zombies_not_fenced_by_coordinator,
        new_instance_keeps_epoch,
        markers_without_epoch_check,
        markers_with_epoch_of_open_transaction_accepted,
        markers_of_former_coordinators_accepted,
        last_stable_offset_is_high_watermark,
        decision_forgotten_on_takeover,
        answer_before_decision_is_replicated,
        offsets_count_before_commit,
        unstable_offsets_served,
        generation_of_transactional_commit_not_checked,
        partitions_not_verified,
        markers_to_some_partitions_only,
        decided_transactions_aborted_on_takeover,
        aborted_transactions_not_indexed,
        aborted_transactions_end_at_segment_seam,
        markers_acknowledged_before_replication,
        unreplicated_markers_end_transactions,
        open_transactions_forgotten_on_restart,
    )
}
