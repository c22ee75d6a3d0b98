"""Synchronization of a mirror's group offsets, with fakes of both clusters."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest

from ottla_broker.mirroring.group_offsets import CommittedOffset, GroupOffsetSync, offsets_to_commit, rename_topics
from ottla_broker.mirroring.target_errors import TargetClusterError
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

COMMITS = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.builds(CommittedOffset, st.integers(0, 20)))


@given(COMMITS, COMMITS, st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.integers(0, 20)))
def test_offsets_only_move_forward_up_to_the_high_watermark(
    source_commits: dict[tuple[str, int], CommittedOffset],
    target_commits: dict[tuple[str, int], CommittedOffset],
    ends: dict[tuple[str, int], int],
) -> None:
    after = {**target_commits, **offsets_to_commit(source_commits, target_commits, ends)}
    for partition, one in after.items():
        if partition in target_commits and one.offset <= target_commits[partition].offset:
            assert one == target_commits[partition]
        else:
            assert partition in target_commits or partition in ends
            assert one.offset <= min(source_commits[partition].offset, ends[partition])
    for partition in source_commits.keys() & ends.keys():
        assert after[partition].offset >= min(source_commits[partition].offset, ends[partition])
    assert offsets_to_commit(source_commits, after, ends) == {}


def test_offsets_are_committed_for_renamed_topics() -> None:
    source_commits = {("a", 0): CommittedOffset(5), ("a", 1): CommittedOffset(6), ("b", 0): CommittedOffset(7)}
    assert rename_topics(source_commits, {"a": "west.a"}) == {
        ("west.a", 0): CommittedOffset(5),
        ("west.a", 1): CommittedOffset(6),
    }


@dataclass
class FakeCluster:
    """Source or target as its client sees it: one topic of one partition. `groups`: committed
    offsets. `errors`: by group, what a request to its coordinator raises.
    """

    groups: dict[str, int] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    requested_groups: list[str] = field(default_factory=list)

    async def metadata(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)])

    async def send(self, _: object, broker: int) -> SimpleNamespace:
        listed = [SimpleNamespace(group_id=group) for group in self.groups]
        return SimpleNamespace(error_code=ErrorCode.none, groups=listed)

    async def send_to_coordinator(self, group: str, request: Any) -> SimpleNamespace:
        self.requested_groups.append(group)
        if group in self.errors:
            raise self.errors[group]
        if not isinstance(request, OffsetFetchRequest):
            ((partition,),) = [topic.partitions for topic in request.topics]
            self.groups[group] = partition.committed_offset
        one = SimpleNamespace(
            partition_index=0,
            committed_offset=self.groups.get(group, -1),
            metadata="",
            error_code=ErrorCode.none,
        )
        return SimpleNamespace(error_code=ErrorCode.none, topics=[SimpleNamespace(name="t", partitions=[one])])

    async def list_offset(self, topic: str, partition: int) -> int:
        return 100


async def sync_once(sync: GroupOffsetSync) -> Exception | None:
    try:
        await sync.sync_groups({"t": "t"})
    except (KafkaError, TimeoutError, TargetClusterError) as reason:
        return reason
    return None


def test_error_of_one_group_does_not_stop_the_others() -> None:
    source, target = FakeCluster({"a": 7, "b": 8}), FakeCluster()
    target.errors["a"] = KafkaError(ErrorCode.offset_metadata_too_large)
    sync = GroupOffsetSync(("*",), cast(Client, source), cast(Client, target))
    raised = asyncio.run(sync_once(sync))
    assert isinstance(raised, TargetClusterError) and raised.__cause__ is target.errors["a"]
    assert target.groups == {"b": 8}, "the error is raised after the other groups"
    del target.errors["a"]
    assert asyncio.run(sync_once(sync)) is None
    assert target.groups == {"a": 7, "b": 8}


def test_unresponsive_coordinator_does_not_block_other_groups() -> None:
    source, target = FakeCluster({"a": 6, "b": 7, "c": 8}), FakeCluster()
    source.errors |= {"a": TimeoutError(), "b": TimeoutError()}
    sync = GroupOffsetSync(("*",), cast(Client, source), cast(Client, target))
    for _ in range(3):
        assert isinstance(asyncio.run(sync_once(sync)), TimeoutError)
    assert target.groups == {"c": 8}
    assert source.requested_groups[-2:] == ["c", "a"], "only one unresponsive coordinator is tried per run"


def test_unresponsive_coordinator_of_the_target_is_an_error_of_the_target() -> None:
    source, target = FakeCluster({"a": 6, "b": 7}), FakeCluster()
    target.errors["a"] = TimeoutError()
    sync = GroupOffsetSync(("*",), cast(Client, source), cast(Client, target))
    for _ in range(2):
        raised = asyncio.run(sync_once(sync))
        assert isinstance(raised, TargetClusterError) and str(raised) == "no response in time"
    assert target.groups == {"b": 7}
