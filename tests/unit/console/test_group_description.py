"""Groups of every protocol in one form."""

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_group_describe.v1 import response as consumer
from kio.schema.describe_groups.v5 import response as classic
from kio.schema.errors import ErrorCode
from kio.schema.streams_group_describe.v0 import response as streams
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla_broker.console.group_description import (
    MemberDescription,
    PartitionLag,
    describe_classic,
    describe_modern,
    describe_streams,
    find_owners,
    read_classic_assignment,
    total_lag,
)
from ottla_broker.coordination.consumer_protocol import encode_assignment


def classic_group(protocol_type: str, assignment: bytes) -> classic.DescribedGroup:
    member = classic.DescribedGroupMember(
        member_id="m-1",
        group_instance_id="static-1",
        client_id="app",
        client_host="/10.0.0.1",
        member_metadata=b"",
        member_assignment=assignment,
    )
    return classic.DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId("g"),
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=(member,),
    )


def test_classic_group_has_the_assignment_that_its_leader_wrote() -> None:
    data = encode_assignment({"b": frozenset({2, 0}), "a": frozenset({1})}, 3)
    described = describe_classic(classic_group("consumer", data))
    (member,) = described.members
    assert (described.state, described.assignor, described.epoch) == ("Stable", "range", -1)
    assert member == MemberDescription("m-1", "app", "10.0.0.1", "static-1", -1, (("a", (1,)), ("b", (0, 2))))
    assert find_owners(described.members) == {("a", 1): "app", ("b", 0): "app", ("b", 2): "app"}


def test_groups_of_other_protocol_types_have_no_assignment() -> None:
    data = encode_assignment({"a": frozenset({1})}, 3)
    assert describe_classic(classic_group("connect", data)).members[0].assignment == ()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_an_assignment_which_may_be_empty(data: bytes) -> None:
    assert isinstance(read_classic_assignment(data), tuple)


def test_consumer_group_has_epochs() -> None:
    assignment = consumer.Assignment(
        topic_partitions=(consumer.TopicPartitions(topic_id=None, topic_name=TopicName("a"), partitions=(i32(4),)),)
    )
    member = consumer.Member(
        member_id="m",
        member_epoch=i32(7),
        client_id="app",
        client_host="/::1",
        subscribed_topic_names=(),
        assignment=assignment,
        target_assignment=assignment,
    )
    group = consumer.DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId("g"),
        group_state="Stable",
        group_epoch=i32(7),
        assignment_epoch=i32(7),
        assignor_name="uniform",
        members=(member,),
    )
    described = describe_modern(group)
    assert (described.epoch, described.assignor) == (7, "uniform")
    assert described.members == (MemberDescription("m", "app", "::1", "", 7, (("a", (4,)),)),)


def test_streams_group_shows_tasks_by_their_kind() -> None:
    tasks = (streams.TaskIds(subtopology_id="0", partitions=(i32(1), i32(2))),)
    assignment = streams.Assignment(active_tasks=tasks, standby_tasks=(), warmup_tasks=tasks)
    member = streams.Member(
        member_id="m",
        member_epoch=i32(2),
        client_id="app",
        client_host="/h",
        topology_epoch=i32(0),
        process_id="p",
        client_tags=(),
        task_offsets=(),
        task_end_offsets=(),
        assignment=assignment,
        target_assignment=assignment,
        is_classic=False,
    )
    group = streams.DescribedGroup(
        error_code=ErrorCode.none,
        group_id=GroupId("g"),
        group_state="Stable",
        group_epoch=i32(2),
        assignment_epoch=i32(2),
        members=(member,),
    )
    (described,) = describe_streams(group).members
    assert described.assignment == (("active task 0", (1, 2)), ("warm-up task 0", (1, 2)))


def test_lag_is_unknown_without_either_offset_and_never_negative() -> None:
    lags = [PartitionLag("t", index, *offsets) for index, offsets in enumerate([(3, 10), (-1, 5), (4, -1), (9, 8)])]
    assert [one.lag for one in lags] == [7, -1, -1, 0]
    assert total_lag(lags) == 7
    assert total_lag(lags[1:3]) == -1
