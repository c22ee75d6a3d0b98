"""Dead letters of share groups (KIP-1191): which records become dead letters, what these contain,
and that a record is archived only after them.
"""

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from ottla_broker.share_groups.dead_letters import (
    DeadLetterConfig,
    DeadLetterReason,
    DeadLetters,
    build_dead_letters,
    check_dead_letter_topic,
    split_by_size,
)
from ottla_broker.share_groups.share_group_config import ShareDeliveryConfig
from ottla_broker.share_groups.share_partition import Acknowledgement, AcknowledgeType, SharePartition, Span
from ottla_broker.share_groups.share_partition_leader import SharePartitionLeader
from ottla_broker.share_groups.share_state import DeliveryState, SharePartitionKey, ShareState, StateUpdate
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record
from tests.sim.virtual_loop import run_in_virtual_time

REJECT, RELEASE, ACCEPT = AcknowledgeType.reject, AcknowledgeType.release, AcknowledgeType.accept


def acquire_and_acknowledge(records: SharePartition, last: int, kind: AcknowledgeType) -> None:
    """Delivers records 0 to `last`, and stores their acknowledgement."""
    records.acquire("m", [Span(0, last)], deadline_ms=0, enough=1000, at_most=1000)
    write = records.acknowledge("m", [Acknowledgement(0, last, (kind,))], renewed_until_ms=0)
    assert write is not None
    records.commit(write.id)


def states_of(records: SharePartition) -> list[tuple[int, int, DeliveryState]]:
    return [(one.first, one.last, one.state) for one in records.ranges()]


def test_rejected_records_are_archived_after_their_dead_letters() -> None:
    records = SharePartition(0, max_deliveries=3, max_in_flight=100, has_dead_letters=True)
    acquire_and_acknowledge(records, 4, REJECT)
    assert states_of(records) == [(0, 4, DeliveryState.archiving)]
    assert records.start_offset == 0 and not records.is_idle
    [letters] = records.take_dead_letters()
    assert letters == DeadLetters(0, 4, 1, DeadLetterReason.rejected)
    assert records.take_dead_letters() == []
    write = records.archive_dead_letters(letters)
    assert write is not None and write.start_offset == 5
    records.abort(write.id, 0)
    assert states_of(records) == [(0, 4, DeliveryState.archiving)], "not stored: tried again"
    write = records.archive_dead_letters(letters)
    assert write is not None
    records.commit(write.id)
    assert (records.start_offset, records.is_idle) == (5, True)


def test_records_become_dead_letters_at_the_delivery_limit() -> None:
    records = SharePartition(0, max_deliveries=2, max_in_flight=100, has_dead_letters=True)
    acquire_and_acknowledge(records, 1, RELEASE)
    assert states_of(records) == [(0, 1, DeliveryState.available)]
    records.acquire("m", [Span(0, 1)], deadline_ms=10, enough=9, at_most=9)
    write = records.expire_locks(10)
    assert write is not None
    records.commit(write.id)
    assert records.take_dead_letters() == [DeadLetters(0, 1, 2, DeadLetterReason.delivery_limit)]


def test_without_a_topic_records_are_archived_at_once() -> None:
    records = SharePartition(0, max_deliveries=2, max_in_flight=100)
    acquire_and_acknowledge(records, 4, REJECT)
    assert (records.start_offset, records.take_dead_letters()) == (5, [])


def test_a_later_leader_writes_the_dead_letters_again() -> None:
    before = SharePartition(0, max_deliveries=2, max_in_flight=100, has_dead_letters=True)
    before.acquire("m", [Span(0, 9)], deadline_ms=0, enough=1000, at_most=1000)
    acknowledgements = [Acknowledgement(0, 2, (ACCEPT,)), Acknowledgement(3, 4, (REJECT,))]
    write = before.acknowledge("m", acknowledgements, renewed_until_ms=0)
    assert write is not None
    after = SharePartition(write.start_offset, max_deliveries=2, max_in_flight=100)
    after.restore(write.batches)
    assert after.take_dead_letters() == [DeadLetters(3, 4, 1, DeadLetterReason.unknown)]


def test_a_dead_letter_names_its_record_and_copies_it_if_the_record_is_given() -> None:
    source = Record(5, b"k", b"v", ((("h", b"1")),), offset=7)
    letters = DeadLetters(7, 8, 3, DeadLetterReason.rejected)
    copied, missing = build_dead_letters(letters, "t", 2, "g", {7: source}, now_ms=99)
    named = (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"3"),
        ("__dlq.errors.message", DeadLetterReason.rejected.value.encode()),
    )
    assert (copied.timestamp_ms, copied.key, copied.value) == (99, b"k", b"v")
    assert tuple(copied.headers) == (("h", b"1"), *named)
    assert (missing.key, missing.value, dict(missing.headers)["__dlq.errors.offset"]) == (None, None, b"8")
    unknown = DeadLetters(7, 7, 3, DeadLetterReason.unknown)
    [one] = build_dead_letters(unknown, "t", 2, "g", {}, now_ms=99)
    assert "__dlq.errors.message" not in dict(one.headers)


def test_dead_letters_are_split_into_batches() -> None:
    records = [Record(0, None, b"x" * 100) for _ in range(10)]
    assert [len(batch) for batch in split_by_size(records, 300)] == [2] * 5
    assert [len(batch) for batch in split_by_size(records, 1)] == [1] * 10


ENABLED = {"errors.deadletterqueue.group.enable": "true"}


@pytest.mark.parametrize(
    ("topic", "prefix", "config"),
    [
        ("orders", "dlq.", ENABLED),
        ("__consumer_offsets", "", ENABLED),
        ("dlq.orders", "dlq.", {}),
        ("dlq.orders", "dlq.", {"errors.deadletterqueue.group.enable": "false"}),
        ("orders", "dlq.", None),
    ],
)
def test_only_topics_that_allow_it_get_dead_letters(topic: str, prefix: str, config: dict[str, str] | None) -> None:
    with pytest.raises(KafkaError) as refused:
        check_dead_letter_topic(topic, prefix, config)
    assert refused.value.code is ErrorCode.policy_violation
    check_dead_letter_topic("dlq.orders", "dlq.", ENABLED)
    check_dead_letter_topic("dlq.orders", "dlq.", None)
    check_dead_letter_topic("orders", "", ENABLED)


def test_a_group_has_dead_letters_if_its_configs_name_a_topic() -> None:
    assert DeadLetterConfig.of_group({}) == DeadLetterConfig("", False)
    configs = {"errors.deadletterqueue.topic.name": "dlq.g", "errors.deadletterqueue.copy.record.enable": "true"}
    assert DeadLetterConfig.of_group(configs) == DeadLetterConfig("dlq.g", True)


class FakeShareCoordinator:
    """A share coordinator whose writes fail while `failures` are left."""

    def __init__(self) -> None:
        self.updates: list[StateUpdate] = []
        self.failures = 0

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        return ShareState(start_offset=0)

    async def write(self, key: SharePartitionKey, update: StateUpdate) -> None:
        if self.failures:
            self.failures -= 1
            raise KafkaError(ErrorCode.coordinator_not_available)
        self.updates.append(update)


class FakeDeadLetterWriter:
    """After each write of dead letters, the next write of a state fails. `updates_before`: number
    of states that were stored before each write.
    """

    def __init__(self, states: FakeShareCoordinator) -> None:
        self.written: list[DeadLetters] = []
        self.updates_before: list[int] = []
        self._states = states

    def config_of(self, group_id: str) -> DeadLetterConfig:
        return DeadLetterConfig("dlq.t")

    async def write(self, group_id: str, source: Any, letters: DeadLetters) -> None:
        self.written.append(letters)
        self.updates_before.append(len(self._states.updates))
        self._states.failures = 1


class FakePartition:
    """A partition that this broker leads."""

    leader_epoch = 0
    is_leader = True

    def __init__(self) -> None:
        self.read_waiters: Any = set()


def test_the_leader_archives_records_when_their_dead_letters_are_written() -> None:
    states = FakeShareCoordinator()
    dead_letters = FakeDeadLetterWriter(states)
    key, partition, client = SharePartitionKey("g", UUID(int=1), 0), cast(Any, FakePartition()), cast(Any, states)

    async def test() -> None:
        leader = SharePartitionLeader(key, partition, client, ShareDeliveryConfig, lambda: True, int, dead_letters)
        await leader.load()
        records = leader._loaded_records()
        records.acquire("m", [Span(0, 1)], deadline_ms=1 << 60, enough=9, at_most=9)
        await leader.acknowledge("m", [Acknowledgement(0, 1, (REJECT,))])
        changed = asyncio.Event()
        leader.waiters.add(changed.set)
        async with asyncio.timeout(10):
            while not leader.is_idle:
                changed.clear()
                await changed.wait()
        leader.close()

    run_in_virtual_time(test())
    assert dead_letters.written == [DeadLetters(0, 1, 1, DeadLetterReason.rejected)]
    assert dead_letters.updates_before == [1], "the state `archiving` is stored before the dead letter is written"
    assert [one.start_offset for one in states.updates] == [0, 2], "also after a write that failed"
