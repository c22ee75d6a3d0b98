import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest

from ottla_broker.mirroring.group_offsets import CommittedOffset, GroupOffsetSync, offsets_to_commit, rename_topics
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError

PLACES = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.builds(CommittedOffset, st.integers(0, 20)))


@given(PLACES, PLACES, st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.integers(0, 20)))
def test_offsets_only_move_forward_up_to_the_high_watermark(
    there: dict[tuple[str, int], CommittedOffset],
    here: dict[tuple[str, int], CommittedOffset],
    ends: dict[tuple[str, int], int],
) -> None:
    after = {**here, **offsets_to_commit(there, here, ends)}
    for place, one in after.items():
        if place in here and one.offset <= here[place].offset:
            assert one == here[place]
        else:
            assert place in here or place in ends
            assert one.offset <= min(there[place].offset, ends[place])
    for place in there.keys() & ends.keys():
        assert after[place].offset >= min(there[place].offset, ends[place])
    assert offsets_to_commit(there, after, ends) == {}


def test_offsets_are_committed_for_renamed_topics() -> None:
    there = {("a", 0): CommittedOffset(5), ("a", 1): CommittedOffset(6), ("b", 0): CommittedOffset(7)}
    assert rename_topics(there, {"a": "west.a"}) == {
        ("west.a", 0): CommittedOffset(5),
        ("west.a", 1): CommittedOffset(6),
    }


@dataclass
class Cluster:
    """Both clusters as their clients see them, with one topic of one partition. `errors`: by group,
    what a request to its coordinator raises.
    """

    groups: dict[str, int] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def metadata(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)])

    async def send(self, _: object, broker: int) -> SimpleNamespace:
        listed = [SimpleNamespace(group_id=group) for group in self.groups]
        return SimpleNamespace(error_code=ErrorCode.none, groups=listed)

    async def send_to_coordinator(self, group: str, request: Any) -> SimpleNamespace:
        self.asked.append(group)
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
    except (KafkaError, TimeoutError) as reason:
        return reason
    return None


def test_error_of_one_group_does_not_stop_the_others() -> None:
    source, here = Cluster({"a": 7, "b": 8}), Cluster()
    here.errors["a"] = KafkaError(ErrorCode.offset_metadata_too_large)
    sync = GroupOffsetSync(("*",), cast(Client, source), cast(Client, here))
    assert asyncio.run(sync_once(sync)) is here.errors["a"], "the error is raised after the other groups"
    assert here.groups == {"b": 8}
    del here.errors["a"]
    assert asyncio.run(sync_once(sync)) is None
    assert here.groups == {"a": 7, "b": 8}


def test_unresponsive_coordinator_does_not_block_other_groups() -> None:
    source, here = Cluster({"a": 6, "b": 7, "c": 8}), Cluster()
    source.errors |= {"a": TimeoutError(), "b": TimeoutError()}
    sync = GroupOffsetSync(("*",), cast(Client, source), cast(Client, here))
    for _ in range(3):
        assert isinstance(asyncio.run(sync_once(sync)), TimeoutError)
    assert here.groups == {"c": 8}
    assert source.asked[-2:] == ["c", "a"], "only one unresponsive coordinator is tried per run"
