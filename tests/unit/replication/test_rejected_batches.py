"""Batches of an idempotent producer that were in flight behind a rejected batch."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.replication.rejected_batches import MAX_BEHIND, MAX_PRODUCERS, RejectedBatches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.async_tests import async_test
from tests.unit.broker_without_sockets import run_broker
from tests.unit.replication.leader_partition import FakeClusterView, create_leader
from tests.unit.topic_creation import create_topic

FULL = KafkaError(ErrorCode.kafka_storage_error, "no room")
LAST_SEQUENCE = 2**31 - 1


def batch(sequence: int, producer: int = 7, epoch: int = 0) -> bytes:
    return encode_batch([Record(1, None, b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def error_code(rejected: RejectedBatches, records: bytes) -> ErrorCode | None:
    try:
        rejected.check(records)
    except KafkaError as reason:
        return reason.code
    return None


def test_batches_behind_a_rejected_batch_get_its_error() -> None:
    rejected = RejectedBatches()
    rejected.record_rejection(batch(5), FULL)
    assert [error_code(rejected, batch(5 + n)) for n in range(1, MAX_BEHIND + 1)] == [
        ErrorCode.kafka_storage_error
    ] * MAX_BEHIND
    assert error_code(rejected, batch(5)) is None  # the rejected batch, sent again
    assert error_code(rejected, batch(4)) is None  # an earlier batch
    assert error_code(rejected, batch(6, producer=8)) is None
    assert error_code(rejected, batch(6, epoch=1)) is None


def test_sequences_wrap_around() -> None:
    rejected = RejectedBatches()
    rejected.record_rejection(batch(LAST_SEQUENCE), FULL)
    assert error_code(rejected, batch(0)) is ErrorCode.kafka_storage_error
    assert error_code(rejected, batch(LAST_SEQUENCE - 1)) is None


def test_batches_beyond_the_maximum_in_flight_are_not_rejected() -> None:
    rejected = RejectedBatches()
    rejected.record_rejection(batch(5), FULL)
    for number in range(MAX_BEHIND):
        assert error_code(rejected, batch(6 + number)) is not None
    assert error_code(rejected, batch(6)) is None
    assert not rejected


def test_later_batches_are_accepted_after_the_rejected_batch() -> None:
    rejected = RejectedBatches()
    rejected.record_rejection(batch(5), FULL)
    rejected.record_append(batch(5))
    assert not rejected and error_code(rejected, batch(6)) is None


def test_only_retriable_rejections_are_kept_and_only_of_a_bounded_number_of_producers() -> None:
    rejected = RejectedBatches()
    rejected.record_rejection(batch(5), KafkaError(ErrorCode.corrupt_message, "no"))
    rejected.record_rejection(encode_batch([Record(1, None, b"v")]), FULL)  # without idempotence
    rejected.record_rejection(b"short", FULL)
    assert not rejected
    for producer in range(MAX_PRODUCERS + 1):
        rejected.record_rejection(batch(5, producer), FULL)
    assert error_code(rejected, batch(6, 0)) is None
    assert error_code(rejected, batch(6, MAX_PRODUCERS)) is ErrorCode.kafka_storage_error


def rejection(partition: Partition, sequence: int) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        partition.append_records(batch(sequence), acks=ALL_REPLICAS)
    return raised.value.code


@pytest.mark.parametrize("known", [True, False], ids=["a producer that has written", "a new producer"])
@async_test
async def test_no_batch_is_out_of_order_while_the_isr_is_too_small(tmp_path: Path, known: bool) -> None:
    first = 1 if known else 0
    async with run_broker(tmp_path) as broker:
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        partition = broker.partitions.leader("t", 0)
        if known:
            partition.append_records(batch(0), acks=ALL_REPLICAS)
        state = partition.registration
        partition.update_registration(replace(state, isr=(), partition_epoch=state.partition_epoch + 1))
        assert rejection(partition, first) is ErrorCode.not_enough_replicas
        partition.update_registration(replace(state, partition_epoch=state.partition_epoch + 2))
        assert rejection(partition, first + 1) is ErrorCode.not_enough_replicas
        for number in range(3):
            partition.append_records(batch(first + number), acks=ALL_REPLICAS)
        assert partition.log.end == first + 3
        assert rejection(partition, first + 4) is ErrorCode.out_of_order_sequence_number


@async_test
async def test_a_gap_is_out_of_order_only_for_a_leader_in_session(tmp_path: Path) -> None:
    view = FakeClusterView()
    partition = create_leader(tmp_path, view, isr=(1,))
    partition.append_records(batch(0), acks=ALL_REPLICAS)
    view.in_session = False
    assert rejection(partition, 2) is ErrorCode.not_leader_or_follower
    partition.append_records(batch(1), acks=ALL_REPLICAS)
    view.in_session = True
    assert rejection(partition, 3) is ErrorCode.out_of_order_sequence_number


@async_test
async def test_no_batch_is_out_of_order_if_the_one_before_it_came_when_the_replica_was_no_leader(
    tmp_path: Path,
) -> None:
    async with run_broker(tmp_path) as broker:
        await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
        partition = broker.partitions.leader("t", 0)
        partition.append_records(batch(0), acks=ALL_REPLICAS)
        state = partition.registration
        partition.update_registration(
            replace(state, leader=2, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)
        )
        broker.partitions.record_misdirected("t", 0, batch(1))
        broker.partitions.record_misdirected("t", 1, batch(1))  # a partition that is not here
        partition.update_registration(
            replace(state, leader_epoch=state.leader_epoch + 2, partition_epoch=state.partition_epoch + 2)
        )
        assert rejection(partition, 2) is ErrorCode.not_leader_or_follower
        for sequence in (1, 2):
            partition.append_records(batch(sequence), acks=ALL_REPLICAS)
        assert rejection(partition, 4) is ErrorCode.out_of_order_sequence_number


def test_no_batch_is_out_of_order_if_a_mirror_fails_over_between_batches(tmp_path: Path) -> None:
    partition = create_leader(tmp_path, FakeClusterView(), isr=(1,))
    reason = KafkaError(ErrorCode.not_enough_replicas, "is failing over")
    assert partition.rejected_batches.reject(batch(0), reason) is reason
    with pytest.raises(KafkaError, match="behind sequence 0 of producer 7: is failing over"):
        partition.rejected_batches.reject(batch(1), reason)
    with pytest.raises(KafkaError, match="behind sequence 0 of producer 7: is failing over"):
        partition.append_records(batch(2), acks=ALL_REPLICAS)  # the topic is writable now
    for sequence in range(3):
        assert partition.append_records(batch(sequence), acks=ALL_REPLICAS).first_offset == sequence
