"""What to do about a topic: properties of the plan, searched by hypothesis."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.topics import (
    AddPartitions,
    AlterTopicConfig,
    ChangeReplicationFactor,
    CreateTopic,
    DeleteTopic,
    ObservedTopic,
    TopicChange,
    UnsatisfiableSpec,
    after_removal,
    changes,
)
from ottla_operator.resources.topic import Topic
from tests.unit.operator import samples

VALUES = st.sampled_from(["1", "1.0", "delete", "compact,delete", "compact, delete", ""])
NAMES = st.sampled_from(["retention.ms", "cleanup.policy", "max.message.bytes"])
CONFIG = st.dictionaries(NAMES, VALUES)
COUNTS = st.integers(1, 5)


@st.composite
def wishes(draw: st.DrawFn) -> Topic:
    wanted: dict[str, Any] = {
        "partitions": draw(st.none() | COUNTS),
        "replicas": draw(st.none() | COUNTS),
        "config": draw(st.none() | CONFIG),
        "deletionPolicy": draw(st.none() | st.sampled_from(["Retain", "Delete"])),
    }
    return Topic.parse(samples.topic(**{key: value for key, value in wanted.items() if value is not None}))


SEEN = st.none() | st.builds(
    ObservedTopic,
    name=st.just("flights"),
    partitions=COUNTS,
    replicas=COUNTS,
    config=CONFIG,
    most_replicas=st.just(0) | COUNTS,
    brokers=st.integers(0, 5),
)


def done(seen: ObservedTopic | None, change: TopicChange) -> ObservedTopic | None:
    """A model of brokers that do what they are asked."""
    match change:
        case CreateTopic():
            assert seen is None
            return ObservedTopic(change.name, max(change.partitions, 1), max(change.replicas, 1), dict(change.config))
        case AddPartitions():
            assert seen is not None
            assert change.partitions > seen.partitions
            return replace(seen, partitions=change.partitions)
        case ChangeReplicationFactor():
            assert seen is not None
            assert change.replicas <= seen.brokers
            return replace(seen, replicas=change.replicas, most_replicas=change.replicas)
        case AlterTopicConfig():
            assert seen is not None
            kept = {key: value for key, value in seen.config.items() if key not in change.to_unset}
            return replace(seen, config={**kept, **change.to_set})
        case DeleteTopic():
            return None
        case UnsatisfiableSpec():
            return seen


@given(wishes(), SEEN)
def test_doing_it_leaves_nothing_to_do(wanted: Topic, seen: ObservedTopic | None) -> None:
    before = seen
    for change in changes(wanted, seen):
        seen = done(seen, change)
    rest = changes(wanted, seen)
    assert all(isinstance(it, UnsatisfiableSpec) for it in rest)
    assert seen is not None
    assert before is None or seen.partitions >= before.partitions
    if not rest:
        assert wanted.spec.partitions in (None, seen.partitions)


@given(wishes(), SEEN)
def test_what_is_left_out_is_left_alone(wanted: Topic, seen: ObservedTopic | None) -> None:
    for change in changes(wanted, seen):
        if isinstance(change, AlterTopicConfig):
            assert wanted.spec.config is not None
        if isinstance(change, AddPartitions):
            assert wanted.spec.partitions is not None
        assert not isinstance(change, DeleteTopic)


@given(wishes(), SEEN)
def test_only_delete_deletes(wanted: Topic, seen: ObservedTopic | None) -> None:
    expected = (DeleteTopic("flights"),) if seen and wanted.spec.deletion_policy == "Delete" else ()
    assert after_removal(wanted, seen) == expected


def test_a_new_topic_leaves_to_the_brokers_what_is_not_said() -> None:
    assert changes(Topic.parse(samples.topic()), None) == (CreateTopic("flights", -1, -1, {}),)


def test_settings_taken_out_go_back_to_the_default() -> None:
    wanted = Topic.parse(samples.topic(config={"retention.ms": -1, "preallocate": True}))
    seen = ObservedTopic("flights", 1, 1, {"retention.ms": "5", "cleanup.policy": "compact"})
    assert changes(wanted, seen) == (
        AlterTopicConfig("flights", {"retention.ms": "-1", "preallocate": "true"}, ("cleanup.policy",)),
    )


def test_another_number_of_replicas() -> None:
    wanted = Topic.parse(samples.topic(replicas=3))
    assert changes(wanted, ObservedTopic("flights", 1, 1, brokers=3)) == (ChangeReplicationFactor("flights", 3),)
    assert changes(wanted, ObservedTopic("flights", 1, 3, brokers=3)) == ()
    assert changes(wanted, ObservedTopic("flights", 1, 3, most_replicas=4, brokers=4)) == (
        ChangeReplicationFactor("flights", 3),
    )
    assert changes(wanted, ObservedTopic("flights", 1, 1, brokers=3, moving=True)) == ()
    (stuck,) = changes(wanted, ObservedTopic("flights", 1, 1, brokers=2))
    assert stuck == UnsatisfiableSpec("flights", "replicas", "3 replicas need as many brokers, and 2 are up")


def test_another_way_to_write_a_number_is_no_change() -> None:
    wanted = Topic.parse(samples.topic(config={"min.cleanable.dirty.ratio": 0.1}))
    assert changes(wanted, ObservedTopic("flights", 1, 1, {"min.cleanable.dirty.ratio": "1.0E-1"})) == ()
