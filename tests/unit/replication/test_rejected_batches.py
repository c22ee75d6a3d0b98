"""A refused batch, and what is behind it on the way."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.replication.partition import ALL_REPLICAS, Partition
from ottla_broker.replication.rejected_batches import MAX_BEHIND, MAX_PRODUCERS, RejectedBatches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.broker_without_sockets import run_broker
from tests.unit.replication.leading import Peers, led
from tests.unit.topic_creation import create_topic

FULL = KafkaError(ErrorCode.kafka_storage_error, "no room")
LAST_SEQUENCE = 2**31 - 1


def batch(sequence: int, producer: int = 7, epoch: int = 0) -> bytes:
    return encode_batch([Record(1, None, b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def code(refusals: RejectedBatches, records: bytes) -> ErrorCode | None:
    try:
        refusals.check(records)
    except KafkaError as reason:
        return reason.code
    return None


def test_batches_behind_a_refused_one_are_refused_alike() -> None:
    refusals = RejectedBatches()
    refusals.note(batch(5), FULL)
    assert [code(refusals, batch(5 + n)) for n in range(1, MAX_BEHIND + 1)] == [
        ErrorCode.kafka_storage_error
    ] * MAX_BEHIND
    assert code(refusals, batch(5)) is None  # it again
    assert code(refusals, batch(4)) is None  # one that was sent before, and is known or not
    assert code(refusals, batch(6, producer=8)) is None
    assert code(refusals, batch(6, epoch=1)) is None


def test_sequences_wrap() -> None:
    refusals = RejectedBatches()
    refusals.note(batch(LAST_SEQUENCE), FULL)
    assert code(refusals, batch(0)) is ErrorCode.kafka_storage_error
    assert code(refusals, batch(LAST_SEQUENCE - 1)) is None


def test_more_than_were_on_the_way_are_a_gap_of_the_producers_own() -> None:
    refusals = RejectedBatches()
    refusals.note(batch(5), FULL)
    for number in range(MAX_BEHIND):
        assert code(refusals, batch(6 + number)) is not None
    assert code(refusals, batch(6)) is None
    assert not refusals


def test_the_refused_one_accepted_ends_it() -> None:
    refusals = RejectedBatches()
    refusals.note(batch(5), FULL)
    refusals.accepted(batch(5))
    assert not refusals and code(refusals, batch(6)) is None


def test_only_what_passes_by_itself_is_remembered_and_not_without_bound() -> None:
    refusals = RejectedBatches()
    refusals.note(batch(5), KafkaError(ErrorCode.corrupt_message, "no"))
    refusals.note(encode_batch([Record(1, None, b"v")]), FULL)  # without idempotence
    refusals.note(b"short", FULL)
    assert not refusals
    for producer in range(MAX_PRODUCERS + 1):
        refusals.note(batch(5, producer), FULL)
    assert code(refusals, batch(6, 0)) is None
    assert code(refusals, batch(6, MAX_PRODUCERS)) is ErrorCode.kafka_storage_error


@pytest.mark.parametrize("known", [True, False], ids=["a producer that has written", "a new producer"])
def test_nothing_is_out_of_order_while_the_isr_is_too_small(tmp_path: Path, known: bool) -> None:
    first = 1 if known else 0

    def refusal(partition: Partition, sequence: int) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            partition.append_records(batch(sequence), acks=ALL_REPLICAS)
        return refused.value.code

    async def run() -> None:
        async with run_broker(tmp_path) as broker:
            await create_topic(broker.active_controller(), NewTopic("t", 1, 1))
            partition = broker.partitions.leader("t", 0)
            if known:
                partition.append_records(batch(0), acks=ALL_REPLICAS)
            state = partition.registration
            partition.update_registration(replace(state, isr=(), partition_epoch=state.partition_epoch + 1))
            assert refusal(partition, first) is ErrorCode.not_enough_replicas
            partition.update_registration(replace(state, partition_epoch=state.partition_epoch + 2))
            assert refusal(partition, first + 1) is ErrorCode.not_enough_replicas
            for number in range(3):
                partition.append_records(batch(first + number), acks=ALL_REPLICAS)
            assert partition.log.end == first + 3
            assert refusal(partition, first + 4) is ErrorCode.out_of_order_sequence_number

    asyncio.run(run())


def test_a_producer_whose_batches_meet_a_failover_in_the_middle_finds_nothing_out_of_order(tmp_path: Path) -> None:
    partition = led(tmp_path, Peers(), isr=(1,))
    reason = KafkaError(ErrorCode.not_enough_replicas, "is failing over")
    assert partition.rejected_batches.reject(batch(0), reason) is reason
    with pytest.raises(KafkaError, match="behind sequence 0 of producer 7: is failing over"):
        partition.rejected_batches.reject(batch(1), reason)
    with pytest.raises(KafkaError, match="behind sequence 0 of producer 7: is failing over"):
        partition.append_records(batch(2), acks=ALL_REPLICAS)  # it is open now
    for sequence in range(3):
        assert partition.append_records(batch(sequence), acks=ALL_REPLICAS).first_offset == sequence
