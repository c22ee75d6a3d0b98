"""The states of share-partitions in one partition of `__share_group_state`."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from ottla_broker.share_groups.share_coordinator import ShareCoordinator
from ottla_broker.share_groups.share_group_config import ShareCoordinatorConfig
from ottla_broker.share_groups.share_state import (
    DeliveryState,
    SharePartitionKey,
    StateBatch,
    StateUpdate,
    combine_batches,
    parse_coordinator_key,
)
from ottla_broker.share_groups.share_state_records import (
    SnapshotValue,
    UpdateValue,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_snapshot_key,
    encode_update,
    encode_update_key,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import iter_records
from tests.sim.virtual_loop import run_in_virtual_time
from tests.unit.coordination.memory_journal import MemoryJournal, virtual_runtime
from tests.unit.kafka_errors import error_of

KEY = SharePartitionKey("g", UUID(int=7), 3)
ACKED, ARCHIVED, AVAILABLE = DeliveryState.acknowledged, DeliveryState.archived, DeliveryState.available


class PrunableMemoryJournal(MemoryJournal):
    def __init__(self) -> None:
        super().__init__(topic="__share_group_state")
        self.start = 0

    def delete_records_before(self, offset: int) -> None:
        self.start = offset


class ShareCoordinatorBroker:
    """A share coordinator with one partition, which can be restarted from its journal."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self.journal = PrunableMemoryJournal()
        self.config = ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot)

    async def start(self) -> ShareCoordinator:
        self.coordinator = ShareCoordinator(virtual_runtime(), self.config, lambda: 1, lambda: True)
        await self.coordinator.load(self.journal)
        return self.coordinator

    def record_types(self) -> list[int]:
        return [int.from_bytes((record.key or b"")[:2]) for _, record in iter_records(bytes(self.journal.log))]


def run_with_coordinator(
    test: Callable[[ShareCoordinatorBroker, ShareCoordinator], Awaitable[None]], updates_per_snapshot: int = 500
) -> None:
    """Runs a test on virtual time."""

    async def main() -> None:
        broker = ShareCoordinatorBroker(updates_per_snapshot)
        try:
            await test(broker, await broker.start())
        finally:
            broker.coordinator.close()

    run_in_virtual_time(main())


def update(start_offset: int, *batches: StateBatch, leader_epoch: int = 1) -> StateUpdate:
    return StateUpdate(1, leader_epoch, start_offset, 0, batches)


def test_a_state_is_restored_from_snapshots_and_updates() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, 5)
        for at in range(5, 12):
            await coordinator.write(KEY, update(5, StateBatch(at, at, ACKED if at % 2 else AVAILABLE, 1)))
        before = await coordinator.find(KEY)
        assert before is not None and before.batches[0] == StateBatch(5, 5, ACKED, 1)
        assert broker.record_types() == [0, 1, 1, 1, 0, 1, 1, 1]
        coordinator.close()
        assert await (await broker.start()).find(KEY) == before

    run_with_coordinator(test, updates_per_snapshot=3)


def test_the_start_offset_does_not_go_back_when_a_leader_has_several_updates_in_flight() -> None:
    """Otherwise acknowledged records in between would be delivered again."""

    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, 0)
        await coordinator.write(KEY, update(5))
        await coordinator.write(KEY, update(0, StateBatch(7, 8, ACKED, 1)))
        for each in (coordinator, await broker.start()):
            state = await each.read(KEY, 1)
            assert (state.start_offset, state.batches) == (5, (StateBatch(7, 8, ACKED, 1),))

    run_with_coordinator(test)


def test_former_leaders_and_former_offsets_are_fenced() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        assert await error_of(coordinator.read(KEY, 1)) is ErrorCode.unknown_topic_or_partition
        await coordinator.initialize(KEY, 1, -1)
        await coordinator.read(KEY, 4)
        assert await error_of(coordinator.write(KEY, update(0, leader_epoch=3))) is ErrorCode.fenced_leader_epoch
        assert await error_of(coordinator.read(KEY, 3)) is ErrorCode.fenced_leader_epoch
        await coordinator.initialize(KEY, 2, 10)
        assert await error_of(coordinator.write(KEY, update(0, leader_epoch=4))) is ErrorCode.fenced_state_epoch
        assert await error_of(coordinator.initialize(KEY, 1, 0)) is ErrorCode.fenced_state_epoch
        state = await coordinator.read(KEY, 4)
        assert (state.state_epoch, state.start_offset, state.batches) == (2, 10, ())

    run_with_coordinator(test)


def test_a_state_that_is_initialized_again_keeps_what_was_acknowledged() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, -1)
        await coordinator.write(KEY, update(5, StateBatch(7, 8, ACKED, 1)))
        await coordinator.initialize(KEY, 1, -1)
        for each in (coordinator, await broker.start()):
            state = await each.read(KEY, 1)
            assert (state.start_offset, state.batches) == (5, (StateBatch(7, 8, ACKED, 1),))

    run_with_coordinator(test)


def test_a_change_that_cannot_be_appended_changes_nothing() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, 0)
        before = await coordinator.find(KEY)
        broker.journal.failure = KafkaError(ErrorCode.not_enough_replicas)
        write = coordinator.write(KEY, update(0, StateBatch(0, 4, ACKED, 1)))
        assert await error_of(write) is ErrorCode.coordinator_not_available
        assert await error_of(coordinator.delete(KEY)) is ErrorCode.coordinator_not_available
        assert await coordinator.find(KEY) == before

    run_with_coordinator(test)


def test_impossible_batches_are_refused() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, 0)
        for batch in (StateBatch(4, 3, ACKED, 1), StateBatch(-1, 3, ACKED, 1), StateBatch(0, 3, 1, 1)):
            assert await error_of(coordinator.write(KEY, update(0, batch))) is ErrorCode.invalid_request

    run_with_coordinator(test)


def test_a_deleted_state_stays_deleted() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, 0)
        await coordinator.delete(KEY)
        await coordinator.delete(KEY)
        assert await coordinator.find(KEY) is None
        coordinator.close()
        assert await (await broker.start()).find(KEY) is None

    run_with_coordinator(test)


def test_records_before_the_oldest_snapshot_are_deleted() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        await coordinator.initialize(KEY, 1, 0)
        cold = KEY._replace(partition=4)
        await coordinator.initialize(cold, 1, 0)
        for at in range(40):
            await coordinator.write(KEY, update(at, StateBatch(at, at, ACKED, 1)))
        [shard] = coordinator._shards.values()
        await shard.prune()
        await shard.prune()
        assert broker.journal.start > 20
        assert (await coordinator.find(cold)) is not None

    run_with_coordinator(test, updates_per_snapshot=5)


def test_states_may_be_deleted_while_their_records_are_pruned() -> None:
    async def test(broker: ShareCoordinatorBroker, coordinator: ShareCoordinator) -> None:
        cold = KEY._replace(partition=4)
        await coordinator.initialize(cold, 1, 0)
        await coordinator.initialize(KEY, 1, 0)
        for at in range(40):
            await coordinator.write(KEY, update(at, StateBatch(at, at, ACKED, 1)))
        [shard] = coordinator._shards.values()
        broker.journal.delay_s = 1
        pruning = asyncio.create_task(shard.prune())
        await asyncio.sleep(0)
        deleting = [asyncio.create_task(coordinator.delete(key)) for key in (KEY, cold)]
        await asyncio.gather(pruning, *deleting)
        assert broker.journal.start == 0

    run_with_coordinator(test)


def test_newer_states_replace_older_ones_offset_by_offset() -> None:
    before = [StateBatch(0, 9, AVAILABLE, 1)]
    after = combine_batches(before, [StateBatch(3, 5, ACKED, 2), StateBatch(6, 6, ACKED, 2)], 1)
    assert after == (StateBatch(1, 2, AVAILABLE, 1), StateBatch(3, 6, ACKED, 2), StateBatch(7, 9, AVAILABLE, 1))
    assert combine_batches(after, [], 20) == ()


def test_an_update_that_arrives_again_after_later_ones_changes_nothing() -> None:
    """As Kafka's coordinator combines batches: by delivery count, then by state."""
    released = StateBatch(0, 9, AVAILABLE, 1)
    after = combine_batches([released], [StateBatch(2, 3, ACKED, 2), StateBatch(5, 5, ARCHIVED, 1)], 0)
    assert combine_batches(after, [released], 0) == after
    assert combine_batches(after, [StateBatch(0, 4, ACKED, 1)], 0) == (
        StateBatch(0, 1, ACKED, 1),
        StateBatch(2, 3, ACKED, 2),
        StateBatch(4, 4, ACKED, 1),
        StateBatch(5, 5, ARCHIVED, 1),
        StateBatch(6, 9, AVAILABLE, 1),
    )


def test_records_have_kafkas_format() -> None:
    """As Kafka 4.2's own classes write them."""
    batches = (StateBatch(1, 2, 2, 3),)
    snapshot = SnapshotValue(1, 2, 3, 4, 5, 6, batches, -1)
    raw = encode_snapshot(snapshot)
    assert raw == bytes.fromhex(
        "0000 00000001 00000002 00000003 0000000000000004 0000000000000005 0000000000000006"
        "02 0000000000000001 0000000000000002 02 0003 00 00"
    )
    assert decode_snapshot(raw) == snapshot
    change = UpdateValue(1, 3, 4, batches, 7)
    raw = encode_update(change)
    assert raw == bytes.fromhex(
        "0000 00000001 00000003 000000000000000402 0000000000000001 0000000000000002 02 0003 00 01 00 04 00000007"
    )
    assert decode_update(raw) == change
    key = bytes.fromhex("0001 67 00000000000000000000000000000007 00000003")
    assert (encode_snapshot_key(KEY), encode_update_key(KEY)) == (b"\0\0" + key, b"\0\1" + key)
    assert decode_key(b"\0\1" + key) == (1, KEY)


def test_a_coordinator_key_is_read_as_it_is_written() -> None:
    assert KEY.coordinator_key == "g:AAAAAAAAAAAAAAAAAAAABw:3"
    assert parse_coordinator_key(KEY.coordinator_key) == KEY
    assert parse_coordinator_key("a:b:" + KEY.coordinator_key) == KEY._replace(group_id="a:b:g")
    assert [parse_coordinator_key(text) for text in ("", "g", "g:x:3", ":AAAAAAAAAAAAAAAAAAAABw:3")] == [None] * 4
