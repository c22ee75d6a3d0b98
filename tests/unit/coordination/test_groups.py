"""The group coordinator on virtual time: writes, loading, and partitions that move to another
broker.
"""

import asyncio

import pytest

from ottla_broker.coordination import loading
from ottla_broker.coordination.classic_group import GroupState
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import JoinRequest, LeavingMember, SyncRequest
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.records import (
    GROUP_METADATA,
    GroupMetadataKey,
    OffsetCommit,
    OffsetCommitKey,
    coordinator_partition,
    decode_key,
    decode_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch
from tests.unit.async_tests import virtual_time_test
from tests.unit.coordination.memory_journal import MemoryJournal, virtual_runtime
from tests.unit.coordination.one_shard import (
    CoordinatorBroker,
    commits,
    join_as_only_member,
    join_request,
    run_with_broker,
)
from tests.unit.kafka_errors import error_of


def test_group_survives_a_restart() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        joined = await join_as_only_member(broker)
        await broker.groups.commit_offsets("g", joined.member_id, None, joined.generation, commits(5))
        await broker.restart()
        broker.groups.heartbeat("g", joined.member_id, None, joined.generation)
        assert broker.groups.describe_group("g").members[joined.member_id].assignment == b"mine"
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 5
        await asyncio.sleep(10.1)
        assert broker.groups.describe_group("g").state is GroupState.empty, "the member sent one heartbeat and no other"

    run_with_broker(test)


def test_commit_is_acknowledged_when_it_is_replicated() -> None:
    """Rule 10 (docs/rules.md)."""

    async def test(broker: CoordinatorBroker) -> None:
        broker.journal.delay_s = 2.0
        write = asyncio.ensure_future(broker.groups.commit_offsets("g", "", None, -1, commits(7)))
        await asyncio.sleep(1.9)
        assert not write.done()
        assert broker.groups.fetch_offsets("g") == {}
        await write
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 7

    run_with_broker(test)


def test_write_that_is_not_replicated_in_time_fails() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        broker.journal.delay_s = 6.0
        assert (
            await error_of(broker.groups.commit_offsets("g", "", None, -1, commits()))
            is ErrorCode.coordinator_not_available
        )
        assert broker.groups.fetch_offsets("g") == {}

    run_with_broker(test)


@pytest.mark.parametrize(
    ("partition_error", "client_error"),
    [
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
        (ErrorCode.message_too_large, ErrorCode.unknown_server_error),
    ],
)
def test_errors_of_the_partition_become_errors_of_the_coordinator(
    partition_error: ErrorCode, client_error: ErrorCode
) -> None:
    async def test(broker: CoordinatorBroker) -> None:
        broker.journal.failure = KafkaError(partition_error)
        assert await error_of(broker.groups.commit_offsets("g", "", None, -1, commits())) is client_error

    run_with_broker(test)


def test_simultaneous_commits_are_written_as_one_batch() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await asyncio.gather(*(broker.groups.commit_offsets(f"g{n}", "", None, -1, commits(n)) for n in range(100)))
        assert broker.journal.batch_count == 1
        assert [broker.groups.fetch_offsets(f"g{n}")["t"][0].offset for n in range(100)] == list(range(100))

    run_with_broker(test)


def test_commit_of_a_disconnected_client_is_completed() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        broker.journal.delay_s = 1.0
        write = asyncio.ensure_future(broker.groups.commit_offsets("g", "", None, -1, commits(7)))
        await asyncio.sleep(0.5)
        write.cancel()
        await asyncio.sleep(1.0)
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 7

    run_with_broker(test)


def test_requests_are_rejected_during_loading_and_after_unloading() -> None:
    """Rule 10 (docs/rules.md)."""

    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits())
        broker.groups.unload(0)
        assert await error_of(broker.groups.commit_offsets("g", "", None, -1, commits())) is ErrorCode.not_coordinator

        class CheckingJournal(MemoryJournal):
            """Sends a request during loading. `error`: that of this request."""

            error: ErrorCode | None = None

            def read(self):  # type: ignore[no-untyped-def]
                with pytest.raises(KafkaError) as raised:
                    broker.groups.fetch_offsets("g")
                self.error = raised.value.code
                with pytest.raises(KafkaError):
                    broker.groups.list_groups()
                yield from broker.journal.read()

        journal = CheckingJournal()
        await broker.groups.load(journal)
        assert journal.error is ErrorCode.coordinator_load_in_progress
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 5

    run_with_broker(test)


@virtual_time_test
async def test_partitions_load_one_at_a_time_and_not_if_they_were_unloaded_before() -> None:
    read_partitions: list[int] = []

    class RecordingJournal(MemoryJournal):
        def read(self):  # type: ignore[no-untyped-def]
            read_partitions.append(self.partition)
            yield b""

    groups = GroupCoordinator(
        virtual_runtime(), GroupCoordinatorConfig(), CoordinatorMetadata(MetadataImage()), lambda: 3
    )
    group_in_partition = {coordinator_partition(name, 3): name for name in map(str, range(100))}
    async with groups._loading:
        loads = [asyncio.ensure_future(groups.load(RecordingJournal(partition))) for partition in range(3)]
        await asyncio.sleep(0)
        for name in group_in_partition.values():
            call = groups.commit_offsets(name, "", None, -1, commits())
            assert await error_of(call) is ErrorCode.coordinator_load_in_progress
        groups.unload(1)
    await asyncio.gather(*loads)
    assert read_partitions == [0, 2]
    assert groups.fetch_offsets(group_in_partition[2]) == {}
    groups.close()


def test_partition_unloaded_during_loading_keeps_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of the members would expire here, each with a write."""

    async def test(broker: CoordinatorBroker) -> None:
        await join_as_only_member(broker)
        for n in range(200):
            await broker.groups.commit_offsets(f"g{n}", "", None, -1, commits(n))
        monkeypatch.setattr(loading, "LOADING_SLICE_S", -1.0)  # every step is followed by a pause
        load = asyncio.ensure_future(broker.groups.load(broker.journal))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await error_of(broker.groups.commit_offsets("g", "", None, -1, commits())) is (
            ErrorCode.coordinator_load_in_progress
        )
        broker.groups.unload(0)
        await load
        written = broker.journal.end
        await asyncio.sleep(60)
        assert broker.journal.end == written

    run_with_broker(test)


def test_partition_that_moved_before_loading_began_is_ignored() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        class FormerLeaderJournal(MemoryJournal):
            async def wait_until_recovered(self) -> None:
                raise KafkaError(ErrorCode.not_leader_or_follower)

        broker.groups.unload(0)  # before the loading task runs
        await broker.groups.load(FormerLeaderJournal())
        assert broker.groups.list_groups() == []
        assert await error_of(broker.groups.commit_offsets("g", "", None, -1, commits())) is ErrorCode.not_coordinator

    run_with_broker(test)


def test_partition_with_a_corrupt_log_is_not_available() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits())
        broker.journal.log[-1] ^= 1
        await broker.groups.load(broker.journal)
        assert (
            await error_of(broker.groups.commit_offsets("g", "", None, -1, commits()))
            is ErrorCode.coordinator_not_available
        )

    run_with_broker(test)


def test_waiting_requests_fail_when_the_partition_moves() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        waiting = asyncio.ensure_future(broker.groups.join_group("g", join_request()))
        await asyncio.sleep(1)
        broker.groups.unload(0)
        assert (await waiting).error is ErrorCode.not_coordinator

    run_with_broker(test)


def test_broker_without_a_session_serves_no_group() -> None:
    """Rule 6 (docs/rules.md)."""

    async def test(broker: CoordinatorBroker) -> None:
        await broker.groups.commit_offsets("g", "", None, -1, commits())
        broker.groups.is_in_session = lambda: False
        assert await error_of(broker.groups.commit_offsets("g", "", None, -1, commits())) is ErrorCode.not_coordinator
        with pytest.raises(KafkaError):
            broker.groups.fetch_offsets("g")
        with pytest.raises(KafkaError):
            broker.groups.list_groups()

    run_with_broker(test)


@virtual_time_test
async def test_coordinator_is_not_available_without_the_offsets_topic() -> None:
    groups = GroupCoordinator(
        virtual_runtime(), GroupCoordinatorConfig(), CoordinatorMetadata(MetadataImage()), lambda: 0
    )
    assert await error_of(groups.join_group("g", join_request())) is ErrorCode.coordinator_not_available


@virtual_time_test
async def test_partition_of_a_group_is_the_hash_of_its_name() -> None:
    groups = GroupCoordinator(
        virtual_runtime(), GroupCoordinatorConfig(), CoordinatorMetadata(MetadataImage()), lambda: 50
    )
    partition = coordinator_partition("g", 50)
    await groups.load(MemoryJournal(partition))
    await groups.commit_offsets("g", "", None, -1, commits())
    other = next(name for name in map(str, range(100)) if coordinator_partition(name, 50) != partition)
    assert await error_of(groups.commit_offsets(other, "", None, -1, commits())) is ErrorCode.not_coordinator
    groups.close()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_rejected(session_ms: int) -> None:
    async def test(broker: CoordinatorBroker) -> None:
        request = JoinRequest("", None, "c", "/h", 60_000, session_ms, "consumer", (("range", b""),))
        assert await error_of(broker.groups.join_group("g", request)) is ErrorCode.invalid_session_timeout

    run_with_broker(test)


def test_empty_group_ids_and_unknown_members_are_rejected() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        assert await error_of(broker.groups.join_group("", join_request())) is ErrorCode.invalid_group_id
        assert await error_of(broker.groups.join_group("g", join_request("unknown"))) is ErrorCode.unknown_member_id
        assert (
            await broker.groups.leave_group("g", [LeavingMember("x"), LeavingMember("y")])
            == [ErrorCode.unknown_member_id] * 2
        )
        assert (
            await error_of(broker.groups.commit_offsets("g", "x", None, 3, commits())) is ErrorCode.group_id_not_found
        )
        await broker.groups.commit_offsets(
            "", "", None, -1, commits()
        )  # the empty group id may store offsets, as in Kafka
        assert broker.groups.list_groups()[0].protocol_type is None, "no member has joined"

    run_with_broker(test)


def test_idle_group_has_one_timer_and_an_empty_group_none() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        joined = await join_as_only_member(broker)
        shard = broker.groups._shards[0]
        for _ in range(100):
            await asyncio.sleep(3)
            broker.groups.heartbeat("g", joined.member_id, None, joined.generation)
            assert len(shard._timers) == 1
        await broker.groups.leave_group("g", [LeavingMember(joined.member_id)])
        await asyncio.sleep(60)
        assert not shard._timers

    run_with_broker(test)


def test_records_have_kafkas_format() -> None:
    """Rule 10 (docs/rules.md)."""

    async def test(broker: CoordinatorBroker) -> None:
        joined = await join_as_only_member(broker)
        await broker.groups.commit_offsets("g", joined.member_id, None, joined.generation, commits())
        group, offset = broker.records()
        assert decode_key(group.key or b"") == GroupMetadataKey("g")
        metadata = decode_value(GROUP_METADATA, group.value or b"")
        assert (metadata.leader, metadata.generation, metadata.protocol) == (joined.member_id, 1, "range")
        assert metadata.members[0].assignment == b"mine"
        assert decode_key(offset.key or b"") == OffsetCommitKey("g", "t", 0)
        assert (group.value or b"")[:2] == b"\x00\x03"
        assert (offset.value or b"")[:2] == b"\x00\x04"

    run_with_broker(test)


def test_transactional_commits_are_valid_if_their_transaction_is_committed() -> None:
    """Apache Kafka writes such commits. The later record counts, not the later marker."""

    def commit(offset: int, producer: int = -1, partition: int = 0) -> bytes:
        record = Record(
            0,
            encode_offset_commit_key("g", "t", partition),
            encode_offset_commit_value(OffsetCommit(offset, -1, "", 0)),
        )
        return encode_batch([record], producer_id=producer, producer_epoch=0, transactional=producer >= 0)

    async def test(broker: CoordinatorBroker) -> None:
        for batch in (
            commit(1, producer=7),
            commit(2, producer=8, partition=1),
            commit(3, producer=9, partition=2),
            commit(4, partition=2),
            encode_end_transaction_marker(True, 0, producer_id=7, producer_epoch=0, timestamp_ms=0),
            encode_end_transaction_marker(False, 0, producer_id=8, producer_epoch=0, timestamp_ms=0),
            encode_end_transaction_marker(True, 0, producer_id=9, producer_epoch=0, timestamp_ms=0),
        ):
            await broker.journal.append(batch)
        await broker.restart()
        assert {partition: commit.offset for partition, commit in broker.groups.fetch_offsets("g")["t"].items()} == {
            0: 1,
            2: 4,
        }

    run_with_broker(test)


def test_records_of_other_group_types_are_ignored() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        await broker.journal.append(
            encode_batch([Record(0, b"\x00\x63\x00\x01g\x00\x01m", b"\x00\x00\x00\x00\x00\x01")])
        )
        await broker.groups.commit_offsets("g", "", None, -1, commits())
        await broker.restart()
        assert broker.groups.fetch_offsets("g")["t"][0].offset == 5

    run_with_broker(test)


def test_group_above_a_lowered_size_limit_rebalances_after_loading() -> None:
    async def test(broker: CoordinatorBroker) -> None:
        joined = await asyncio.gather(*(broker.groups.join_group("g", join_request()) for _ in range(2)))
        await broker.groups.sync_group("g", SyncRequest(joined[0].leader, None, 1, None, None, {}))
        broker.settings = GroupCoordinatorConfig(group_max_size=1)
        await broker.restart()
        assert broker.groups.describe_group("g").state is GroupState.preparing

    run_with_broker(test)
