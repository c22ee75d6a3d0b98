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
def test_offsets_go_forward_and_never_beyond_the_copy(
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


def test_what_is_copied_under_another_name_is_committed_under_it() -> None:
    there = {("a", 0): CommittedOffset(5), ("a", 1): CommittedOffset(6), ("b", 0): CommittedOffset(7)}
    assert rename_topics(there, {"a": "west.a"}) == {
        ("west.a", 0): CommittedOffset(5),
        ("west.a", 1): CommittedOffset(6),
    }


@dataclass
class Cluster:
    """What both clients are asked, with one topic of one partition. `troubles`: what asking a group's coordinator ends with."""

    groups: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def metadata(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)])

    async def send(self, _: object, broker: int) -> SimpleNamespace:
        listed = [SimpleNamespace(group_id=group) for group in self.groups]
        return SimpleNamespace(error_code=ErrorCode.none, groups=listed)

    async def send_to_coordinator(self, group: str, request: Any) -> SimpleNamespace:
        self.asked.append(group)
        if group in self.troubles:
            raise self.troubles[group]
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


async def copied(office: GroupOffsetSync) -> Exception | None:
    try:
        await office.sync_groups({"t": "t"})
    except (KafkaError, TimeoutError) as reason:
        return reason
    return None


def test_what_cannot_be_copied_for_one_group_stops_nothing_for_the_others() -> None:
    source, here = Cluster({"a": 7, "b": 8}), Cluster()
    here.troubles["a"] = KafkaError(ErrorCode.offset_metadata_too_large)
    office = GroupOffsetSync(("*",), cast(Client, source), cast(Client, here))
    assert asyncio.run(copied(office)) is here.troubles["a"], "it is told all the same"
    assert here.groups == {"b": 8}
    del here.troubles["a"]
    assert asyncio.run(copied(office)) is None
    assert here.groups == {"a": 7, "b": 8}


def test_nobody_waits_for_ever_behind_a_coordinator_that_does_not_answer() -> None:
    source, here = Cluster({"a": 6, "b": 7, "c": 8}), Cluster()
    source.troubles |= {"a": TimeoutError(), "b": TimeoutError()}
    office = GroupOffsetSync(("*",), cast(Client, source), cast(Client, here))
    for _ in range(3):
        assert isinstance(asyncio.run(copied(office)), TimeoutError)
    assert here.groups == {"c": 8}
    assert source.asked[-2:] == ["c", "a"], "just one of them is waited for at a time"
