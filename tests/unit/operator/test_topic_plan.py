"""Changes of a topic: properties of the plan, searched by hypothesis, and examples."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.topic_deletion import DeletionRecord, plan_deletions, update_records
from ottla_operator.plan.topics import (
    AddPartitions,
    AlterTopicConfig,
    ChangeReplicationFactor,
    CreateTopic,
    ObservedTopic,
    PlannedChange,
    UnsatisfiableSpec,
    plan_topic_changes,
)
from ottla_operator.resources.topic import Topic
from tests.unit.operator import samples

VALUES = st.sampled_from(["1", "1.0", "delete", "compact,delete", "compact, delete", ""])
NAMES = st.sampled_from(["retention.ms", "cleanup.policy", "max.message.bytes"])
CONFIG = st.dictionaries(NAMES, VALUES)
COUNTS = st.integers(1, 5)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    spec: dict[str, Any] = {
        "partitions": draw(st.none() | COUNTS),
        "replicas": draw(st.none() | COUNTS),
        "config": draw(st.none() | CONFIG),
        "deletionPolicy": draw(st.none() | st.sampled_from(["Retain", "Delete"])),
    }
    return Topic.parse(samples.topic(**{key: value for key, value in spec.items() if value is not None}))


OBSERVED = st.none() | st.builds(
    ObservedTopic,
    name=st.just("flights"),
    partitions=COUNTS,
    replicas=COUNTS,
    config=CONFIG,
    most_replicas=st.just(0) | COUNTS,
    brokers=st.integers(0, 5),
)


def apply_change(observed: ObservedTopic | None, change: PlannedChange) -> ObservedTopic | None:
    """A model of brokers that apply every change."""
    match change:
        case CreateTopic():
            assert observed is None
            return ObservedTopic(change.name, max(change.partitions, 1), max(change.replicas, 1), dict(change.config))
        case AddPartitions():
            assert observed is not None
            assert change.partitions > observed.partitions
            return replace(observed, partitions=change.partitions)
        case ChangeReplicationFactor():
            assert observed is not None
            assert change.replicas <= observed.brokers
            return replace(observed, replicas=change.replicas, most_replicas=change.replicas)
        case AlterTopicConfig():
            assert observed is not None
            kept = {key: value for key, value in observed.config.items() if key not in change.to_unset}
            return replace(observed, config={**kept, **change.to_set})
        case UnsatisfiableSpec():
            return observed


@given(topics(), OBSERVED)
def test_applied_changes_leave_nothing_to_change(topic: Topic, observed: ObservedTopic | None) -> None:
    before = observed
    for change in plan_topic_changes(topic, observed):
        observed = apply_change(observed, change)
    remaining = plan_topic_changes(topic, observed)
    assert all(isinstance(it, UnsatisfiableSpec) for it in remaining)
    assert observed is not None
    assert before is None or observed.partitions >= before.partitions
    if not remaining:
        assert topic.spec.partitions in (None, observed.partitions)


@given(topics(), OBSERVED)
def test_fields_that_the_spec_leaves_out_are_not_changed(topic: Topic, observed: ObservedTopic | None) -> None:
    for change in plan_topic_changes(topic, observed):
        if isinstance(change, AlterTopicConfig):
            assert topic.spec.config is not None
        if isinstance(change, AddPartitions):
            assert topic.spec.partitions is not None


@given(topics(), st.booleans())
def test_only_the_policy_delete_deletes(topic: Topic, is_watched: bool) -> None:
    """`is_watched`: a watch has shown the resource's deletion and its last policy."""
    deletes = topic.spec.deletion_policy == "Delete"
    record = DeletionRecord("flights", "flights", "id")
    records = update_records({"uid": record}, (), {"uid": deletes} if is_watched else {})
    plan = plan_deletions(records, (), {"flights": None})
    assert plan.delete.keys() == ({"uid"} if is_watched and deletes else set())
    assert plan.retained.keys() == (set() if is_watched else {"uid"})


def test_a_new_topic_gets_broker_defaults_for_fields_that_the_spec_leaves_out() -> None:
    assert plan_topic_changes(Topic.parse(samples.topic()), None) == (CreateTopic("flights", -1, -1, {}),)


def test_settings_that_are_removed_go_back_to_the_default() -> None:
    topic = Topic.parse(samples.topic(config={"retention.ms": -1, "preallocate": True}))
    observed = ObservedTopic("flights", 1, 1, {"retention.ms": "5", "cleanup.policy": "compact"})
    assert plan_topic_changes(topic, observed) == (
        AlterTopicConfig("flights", {"retention.ms": "-1", "preallocate": "true"}, ("cleanup.policy",)),
    )


def test_the_replication_factor_is_changed_if_there_are_enough_brokers() -> None:
    topic = Topic.parse(samples.topic(replicas=3))
    assert plan_topic_changes(topic, ObservedTopic("flights", 1, 1, brokers=3)) == (
        ChangeReplicationFactor("flights", 3),
    )
    assert plan_topic_changes(topic, ObservedTopic("flights", 1, 3, brokers=3)) == ()
    assert plan_topic_changes(topic, ObservedTopic("flights", 1, 3, most_replicas=4, brokers=4)) == (
        ChangeReplicationFactor("flights", 3),
    )
    assert plan_topic_changes(topic, ObservedTopic("flights", 1, 1, brokers=3, is_moving=True)) == ()
    (unsatisfiable,) = plan_topic_changes(topic, ObservedTopic("flights", 1, 1, brokers=2))
    assert unsatisfiable == UnsatisfiableSpec("flights", "replicas", "3 replicas need as many brokers, and 2 are up")


def test_another_form_of_the_same_number_is_no_change() -> None:
    topic = Topic.parse(samples.topic(config={"min.cleanable.dirty.ratio": 0.1}))
    assert plan_topic_changes(topic, ObservedTopic("flights", 1, 1, {"min.cleanable.dirty.ratio": "1.0E-1"})) == ()
