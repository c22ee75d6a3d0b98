"""The topics that a topology requires."""

from collections.abc import Callable, Mapping

import pytest

from ottla_broker.coordination.streams_group_records import (
    CopartitionGroup,
    InternalTopic,
    StreamsTopologyValue,
    Subtopology,
)
from ottla_broker.coordination.streams_topology import (
    ConfiguredTopology,
    StreamsStatus,
    check_copartition_groups,
    check_topology,
    configure_topology,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


def internal(name: str, partitions: int = 0) -> InternalTopic:
    return InternalTopic(name, partitions, 0, ())


def part(
    number: str,
    sources: tuple[str, ...] = (),
    *,
    changelogs: tuple[str, ...] = (),
    sinks: tuple[str, ...] = (),
    repartition: tuple[InternalTopic, ...] = (),
    together: tuple[CopartitionGroup, ...] = (),
) -> Subtopology:
    return Subtopology(number, sources, (), tuple(map(internal, changelogs)), sinks, repartition, together)


def configure(topics: Mapping[str, int], *parts: Subtopology) -> ConfiguredTopology:
    return configure_topology(StreamsTopologyValue(1, parts), topics.get)


COUNTING = (
    part("0", ("lines",), sinks=("words",)),
    part("1", changelogs=("counts",), repartition=(internal("words"),)),
)


def test_internal_topics_have_as_many_partitions_as_what_is_read() -> None:
    configured = configure({"lines": 5}, *COUNTING)
    assert {(one.name, one.partitions) for one in configured.missing} == {("words", 5), ("counts", 5)}
    assert configured.problem is not None and configured.problem.code is StreamsStatus.missing_internal_topics
    ready = configure({"lines": 5, "words": 5, "counts": 5}, *COUNTING)
    assert ready.is_ready and ready.task_counts == {"0": 5, "1": 5} and ready.stateful == {"1"}


def test_a_missing_source_topic_is_a_status() -> None:
    configured = configure({}, *COUNTING)
    assert configured.problem is not None and configured.problem.code is StreamsStatus.missing_source_topics
    assert "lines" in configured.problem.detail and not configured.task_counts and not configured.missing


def test_an_internal_topic_with_a_wrong_partition_count_is_a_status() -> None:
    configured = configure({"lines": 5, "counts": 4}, *COUNTING)
    assert configured.problem is not None and configured.problem.code is StreamsStatus.incorrectly_partitioned_topics
    assert "expected 5, found 4" in configured.problem.detail


def test_joined_topics_need_the_same_number_of_partitions() -> None:
    joined = part("0", ("a", "b"), together=(CopartitionGroup((0, 1), (), ()),))
    assert configure({"a": 2, "b": 2}, joined).is_ready
    configured = configure({"a": 2, "b": 3}, joined)
    assert configured.problem is not None and configured.problem.code is StreamsStatus.incorrectly_partitioned_topics


def test_a_repartition_topic_takes_the_partitions_of_what_it_is_joined_with() -> None:
    joined = part("1", ("b",), repartition=(internal("words"),), together=(CopartitionGroup((0,), (), (0,)),))
    configured = configure({"lines": 5, "b": 3}, COUNTING[0], joined)
    assert configured.missing == (internal("words", 3),) and configured.task_counts["1"] == 3


def test_a_loop_of_repartition_topics_is_an_invalid_topology() -> None:
    loop = (
        part("0", sinks=("a",), repartition=(internal("b"),)),
        part("1", sinks=("b",), repartition=(internal("a"),)),
    )
    with pytest.raises(KafkaError) as refused:
        configure({}, *loop)
    assert refused.value.code is ErrorCode.streams_invalid_topology


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (part("0", ("a",), together=(CopartitionGroup((0, 1), (), ()),)), check_copartition_groups),
        (part("0", ("a",), together=(CopartitionGroup((0,), (), (-1,)),)), check_copartition_groups),
        (part("0", ("a",))._replace(changelog_topics=(internal("counts", 4),)), check_topology),
    ],
)
def test_a_topology_that_contradicts_itself_is_invalid(
    wrong: Subtopology, check: Callable[[StreamsTopologyValue], None]
) -> None:
    with pytest.raises(KafkaError) as refused:
        check(StreamsTopologyValue(1, (wrong,)))
    assert refused.value.code is ErrorCode.streams_invalid_topology
